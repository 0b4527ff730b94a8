#include "backend/session/usage_rates.h"

#include <algorithm>

namespace bandsaw {
namespace {

// A counter that has gone back belongs to another runner now.
uint64_t difference(uint64_t now, uint64_t before) { return now >= before ? now - before : now; }

uint32_t percent(uint64_t part_ns, uint64_t all_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(100, (std::min(part_ns, all_ns) * 100 + all_ns / 2) / all_ns));
}

UsageRate rate(const EngineUse& now, const EngineUse& before, uint64_t period_ns) {
  const uint64_t compute = difference(now.compute_ns, before.compute_ns);
  // A kernel is charged when it ends. One that has filled the whole second has been charged nothing in it.
  const bool filled = compute == 0 && now.computes && before.computes;
  return {filled ? 100 : percent(compute, period_ns), percent(difference(now.copy_ns, before.copy_ns), period_ns),
          difference(now.bytes_in, before.bytes_in), difference(now.bytes_out, before.bytes_out)};
}

}  // namespace

void UsageRates::take(const UsagePageOwner& usage_page, Time now) {
  const bool first = taken_ == Time{};
  const auto period = std::chrono::duration_cast<std::chrono::nanoseconds>(now - taken_).count();
  taken_ = now;
  total_ = {};
  for (size_t slot = 0; slot < last_.size(); ++slot) {
    const EngineUse use = usage_page.engine_use(static_cast<int>(slot));
    rates_[slot] = first || period <= 0 ? UsageRate{} : rate(use, last_[slot], static_cast<uint64_t>(period));
    last_[slot] = use;
    total_.compute_percent = std::min(100u, total_.compute_percent + rates_[slot].compute_percent);
    total_.copy_percent = std::min(100u, total_.copy_percent + rates_[slot].copy_percent);
    total_.bytes_in += rates_[slot].bytes_in;
    total_.bytes_out += rates_[slot].bytes_out;
  }
}

}  // namespace bandsaw
