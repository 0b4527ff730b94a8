#include "backend/control/stall_budget.h"

#include <algorithm>

namespace bandsaw {
namespace {

// Many faults are not held against a virtual GPU for ever.
constexpr int64_t kLongestWait = 60'000'000'000;

// In how much time so long a stall is allowed.
int64_t time_for(int64_t stall, uint32_t most) { return stall * kStallUnlimited / std::max<int64_t>(most, 1); }

// The word may hold anything.
int64_t bounded(int64_t paid_at, uint32_t most, int64_t now) {
  return std::clamp(paid_at, now, now + time_for(kStallBurst, most) + kLongestWait);
}

int64_t wait_until(int64_t paid_at, uint32_t most, int64_t now) {
  return std::clamp<int64_t>(paid_at - now - time_for(kStallBurst, most), 0, kLongestWait);
}

}  // namespace

int64_t StallBudget::take(int64_t stall, uint32_t most, int64_t now) {
  if (most >= kStallUnlimited) return 0;
  int64_t before = paid_at_->load();
  for (;;) {
    const int64_t after = bounded(before, most, now) + time_for(stall, most);
    if (paid_at_->compare_exchange_weak(before, after)) return wait_until(after, most, now);
  }
}

int64_t StallBudget::take_now(int64_t stall, uint32_t most, int64_t now) {
  if (most >= kStallUnlimited) return 0;
  int64_t before = paid_at_->load();
  for (;;) {
    const int64_t after = bounded(before, most, now) + time_for(stall, most);
    if (const int64_t wait = wait_until(after, most, now); wait > 0) return wait;
    if (paid_at_->compare_exchange_weak(before, after)) return 0;
  }
}

int64_t StallBudget::debt(uint32_t most, int64_t now) const {
  if (most >= kStallUnlimited) return 0;
  return wait_until(bounded(paid_at_->load(), most, now), most, now);
}

int64_t StallBudget::owed(uint32_t most, int64_t now) const {
  return (bounded(paid_at_->load(), most, now) - now) / kStallUnlimited * std::min(most, kStallUnlimited);
}

}  // namespace bandsaw
