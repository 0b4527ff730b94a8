// Who is to keep the engine in its pauses: the part of TimeSliceWeights that lags alone cannot steer.
#include <algorithm>
#include <utility>

#include "vgpu-sched/policy/time_slice_weights.h"

namespace bandsaw::sched {
namespace {

// Less than this part of what it was promised is too little for who loses by switches; for others, where those beside
// them have at least what they were promised; and where they have not.
constexpr double kTooLittle = 0.98, kClearlyTooLittle = 0.92, kFarTooLittle = 0.8;
// Who is hardly idle pauses for this part of its work at most, or of a switch, which is what it would lose else.
constexpr double kIdlePart = 1.0 / 3;
// Over how long what a program gets done is compared, and what is clearly less than it was.
constexpr double kRateOver = 1e9;  // ns
constexpr Time kCompared = 2 * kSecond;
constexpr double kClearlyLess = 0.9;

}  // namespace

bool TimeSliceWeights::is_hardly_idle(const Entry& entry) const {
  return std::ranges::all_of(entry.processes, [&](const auto& numbered) {
    const TimeSliceProcess& process = numbered.second;
    if (!works(process) || process.never_rests()) return true;
    const bool known = process.knows_idle() || process.burst >= kShortBurst;
    const auto most = static_cast<double>(std::max(process.burst, options_.switch_cost));
    return known && process.mean_idle() <= kIdlePart * most;
  });
}

// It and somebody else are hardly idle: so nobody gains by its pauses, and what it lacks is lost by switches.
bool TimeSliceWeights::loses_by_switches(const Entry& entry) const {
  return entry.active && is_hardly_idle(entry) && std::ranges::any_of(entries_, [&](const auto& numbered) {
           const Entry& other = numbered.second;
           return &other != &entry && other.active && is_hardly_idle(other);
         });
}

// All others have at least what they were promised.
bool TimeSliceWeights::others_have_theirs(const Entry& entry) const {
  return std::ranges::all_of(entries_, [&](const auto& numbered) {
    const Entry& other = numbered.second;
    return &other == &entry || !other.active || other.behind <= most_behind(other) / 64;
  });
}

double TimeSliceWeights::too_little(const Entry& entry) const {
  if (loses_by_switches(entry)) return kTooLittle;
  return others_have_theirs(entry) ? kClearlyTooLittle : kFarTooLittle;
}

// It asks for the engine again sooner than the hardware could serve the others and come back, and a time slice holds
// more than one of its steps; or a step is many short kernels that the host issues one by one.
bool TimeSliceWeights::gains_by_keeping(const Entry& entry) const {
  if (!entry.active || entry.latency != 0 || entry.active_processes > 1) return false;
  const auto most = static_cast<double>(active_processes() * options_.switch_cost);
  bool any = false;
  for (const auto& [number, process] : entry.processes) {
    if (works(process) && process.burst >= options_.each) return false;
    any |= works(process);
    if (process.mean_pause > most && now_ - process.last_busy <= options_.memory) return false;
  }
  return any;
}

void TimeSliceWeights::fit_keeps() {
  const bool others = active() > 1;
  for (auto& [vgpu, entry] : entries_) {
    if (entry.keeps) {
      review_keep(entry, others);
      continue;
    }
    const double most = most_behind(entry);
    entry.behind = std::clamp(entry.behind, 0.0, most);
    const bool soon = loses_by_switches(entry);
    if (!others || entry.behind < most / (soon ? 16 : 2)) entry.behind_since = now_;
    const bool for_long = now_ - entry.behind_since >= (soon ? options_.keep_soon : options_.keep_after);
    if (!for_long || now_ < entry.keep_from || !gains_by_keeping(entry)) continue;
    entry.keeps = true;
    entry.keep_from = entry.kept_since = entry.beside_at = now_;
    entry.keep_rests = 0;
    entry.rate_before = now_ - std::exchange(shared_since_, now_) >= kCompared ? entry.rate : 0;
    entry.lag = 0;  // it could not have used it
    for (auto& [number, process] : entry.processes) {
      process.forget_yield();  // that of shorter time slices was another one
      process.restart(kLongest);
    }
  }
}

void TimeSliceWeights::note_rates(double span) {
  if (span <= 0) return;
  for (auto& [vgpu, entry] : entries_) {
    const double own = std::exchange(entry.own, 0);
    entry.rate += (own / span - entry.rate) * std::min(1.0, span / kRateOver);
  }
}

// A program whose launches come one by one has work between the pauses of others, too. Where it keeps the engine it
// pays for its own pauses.
bool TimeSliceWeights::had_more_before(const Entry& entry) const {
  return shared_since_ == entry.kept_since && now_ - entry.kept_since >= kCompared &&
         entry.rate < kClearlyLess * entry.rate_before;
}

// Alone, it need not keep the engine; for a while it will again as soon as somebody comes back.
void TimeSliceWeights::review_keep(Entry& entry, bool others) {
  if (others) entry.beside_at = now_;
  if (!others || now_ - entry.keep_from > kSecond) {
    entry.keep_from = now_;
    entry.keep_rests = 0;
  }
  const bool in_vain = entry.keep_rests > options_.keep_rests || had_more_before(entry);
  const bool may = entry.active && entry.latency == 0 && entry.active_processes == 1;
  if (may && !in_vain && now_ - entry.beside_at <= options_.keep_alone) return;
  entry.keeps = false;
  shared_since_ = now_;
  for (auto& [number, process] : entry.processes) process.forget_yield();
  const Time pause = std::min(options_.keep_again << std::min(entry.keep_fails, 10u), options_.keep_last);
  entry.keep_from = in_vain ? now_ + pause : now_;
  entry.keep_fails = in_vain ? entry.keep_fails + 1 : 0;
}

// The program that this was found out of has ended: the next one may be another.
void TimeSliceWeights::forget_keep(Entry& entry) {
  if (std::exchange(entry.keeps, false)) shared_since_ = now_;
  entry.keep_from = entry.behind_since = now_;
  entry.keep_rests = entry.keep_fails = 0;
  entry.behind = entry.rate = 0;
}

bool TimeSliceWeights::keeps(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found != entries_.end() && found->second.keeps && active() > 1;
}

}  // namespace bandsaw::sched
