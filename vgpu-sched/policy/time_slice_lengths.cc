// How long time slices are to be, and when they are changed: the part of TimeSliceWeights that follows from lags.
#include <algorithm>
#include <cmath>

#include "vgpu-sched/policy/time_slice_weights.h"

namespace bandsaw::sched {
namespace {

// By what factor a time slice has to change for it to be changed at all, and for it to be changed soon.
constexpr double kSmallChange = 1.08, kLargeChange = 2;

}  // namespace

// Its work between two rests is long enough for the lengths of time slices to be fitted to it.
bool TimeSliceWeights::fills_slices(const TimeSliceProcess& process) const {
  return works(process) && !process.never_rests() && process.burst >= kShortBurst;
}

// Calls `use(burst, part)` for those who have no more than a burst at a time, and gain by time slices that it fills.
void TimeSliceWeights::each_burst(const std::function<double(const Entry&)>& part,
                                  const std::function<void(double burst, double part)>& use) const {
  constexpr double kRoom = 1.03;
  for (const auto& [vgpu, entry] : entries_) {
    if (!entry.active || entry.active_processes > 1) continue;
    for (const auto& [number, process] : entry.processes) {
      if (!fills_slices(process)) continue;
      use(kRoom * process.takes(), part(entry));
    }
  }
}

// A turn of about this length in which the work that somebody has at a time fills one of its time slices, or two. With
// a little too much for it, there would be a nearly empty one in each step. Who has less than a time slice ends it
// early: so the turn is no longer than that work at its part, and the others have theirs.
double TimeSliceWeights::fitting(double turn, const std::function<double(const Entry&)>& part) const {
  constexpr double kScaleLeast = 0.5, kScaleMost = 1.2;
  double most = turn;
  each_burst(part, [&](double burst, double own) { most = std::min(most, burst / own); });
  double best = 1, change = 1;
  each_burst(part, [&](double burst, double own) {
    for (const int slices : {1, 2}) {
      const double scale = burst / slices / (most * own);
      if (scale < kScaleLeast || scale > kScaleMost || std::abs(scale - 1) >= change) continue;
      best = scale;
      change = std::abs(scale - 1);
    }
  });
  return best * most;
}

// The nearest time slice to this one of which its work fills a whole number. Of a shorter one it would take one more,
// and have less of each round than it is to.
Time TimeSliceWeights::filled(Time slice, const Entry& entry) const {
  constexpr double kLeastParts = 1.5, kRoom = 0.03, kRoomOfLast = 0.25;
  if (entry.active_processes > 1) return slice;
  for (const auto& [number, process] : entry.processes) {
    if (!fills_slices(process)) continue;
    const double parts = process.takes() / static_cast<double>(slice);
    if (parts < kLeastParts) continue;
    const double fewer = std::floor(parts), more = fewer + 1;
    const double nearest = parts * parts < fewer * more ? fewer : more;
    return static_cast<Time>(process.takes() / nearest * (1 + std::min(kRoom, kRoomOfLast / nearest)));
  }
  return slice;
}

void TimeSliceWeights::fit_slices() {
  double sum = 0;
  int count = 0;
  const double steering = has_bursty() ? options_.burst_steering : options_.steering;
  const auto weight = [&](const Entry& entry) {
    const double lag_ms = entry.lag / entry.fraction / static_cast<double>(kMillisecond);
    return entry.fraction * std::exp(steering * lag_ms);
  };
  for (const auto& [vgpu, entry] : entries_) {
    if (!entry.active) continue;
    sum += weight(entry);
    count += entry.active_processes;
  }
  const double turn =
      fitting(static_cast<double>(std::clamp(count * options_.each, options_.least_turn, options_.most_turn)),
              [&](const Entry& entry) { return weight(entry) / sum; });
  std::map<VgpuId, Lengths> wanted;
  for (auto& [vgpu, entry] : entries_) {
    if (!entry.active) continue;
    const Lengths usual = divided(filled(static_cast<Time>(turn * weight(entry) / sum), entry), entry);
    const Time unbounded = std::max(usual.first, probing(entry));
    wanted[vgpu] = {bounded(unbounded, entry), usual.later == 0 ? 0 : bounded(usual.later, entry)};
    entry.unbounded = wanted[vgpu].first < unbounded ? unbounded : 0;
  }
  change_slices(wanted);
}

// A time slice in which its work is not interrupted, while it is not known how long that takes; else 0. One program at
// a time. What is thought of that work may be too little by far, and who rests sooner ends its time slice.
Time TimeSliceWeights::probing(Entry& entry) {
  Time longest = 0;
  for (const auto& [number, process] : entry.processes) {
    if (process.later || process.outgrown || process.burst > options_.probe ||
        now_ - process.unlearnt_at > options_.unlearnt_for || now_ - process.last_busy > options_.memory)
      continue;
    longest = std::max(longest, process.burst);
  }
  if (longest < kShortBurst || active_processes() < 2) {
    entry.probe_until = std::min(entry.probe_until, now_);  // somebody else may begin
    return 0;
  }
  if (now_ > entry.probe_until) {
    const Time in_vain = std::min(options_.probe_again << std::min(entry.probes, 10u), options_.probe_last);
    const Time pause = entry.probes == 0 ? 2 * options_.probe_for : in_vain;
    const bool others = std::any_of(entries_.begin(), entries_.end(), [&](const auto& other) {
      return &other.second != &entry && other.second.active && now_ <= other.second.probe_until;
    });
    if (others || now_ - entry.probed_at < pause) return 0;
    entry.probed_at = now_;
    entry.probe_until = now_ + options_.probe_for;
    ++entry.probes;
  }
  return std::min(2 * longest, options_.probe);
}

// Sets what is wanted if it is time to. Each change makes the hardware begin its round anew, with the program that it
// serves first: many of them would give that one the engine. So all time slices change at once, and seldom.
void TimeSliceWeights::change_slices(const std::map<VgpuId, Lengths>& wanted) {
  double ratio = 1;
  const auto see = [&ratio](Time now, Time then) {
    const double change = static_cast<double>(then) / static_cast<double>(now);
    ratio = std::max({ratio, change, 1 / change});
  };
  for (const auto& [vgpu, lengths] : wanted) {
    see(entries_[vgpu].slice, lengths.first);
    if (lengths.later != 0) see(entries_[vgpu].later_slice, lengths.later);
  }
  const bool others = !std::equal(wanted.begin(), wanted.end(), changed_.begin(), changed_.end(),
                                  [](const auto& one, const auto& other) { return one.first == other.first; });
  const bool moved =
      std::any_of(wanted.begin(), wanted.end(), [this](const auto& one) { return is_ordered_anew(one); });
  const bool visits = changes_visits(wanted);
  const Time pause = others                           ? 0
                     : ratio >= kLargeChange || moved ? options_.between_large
                     : visits                         ? options_.between_visits
                                                      : options_.between;
  if ((ratio < kSmallChange && !visits && !moved) || now_ - changed_at_ < std::max(pause, whole_round())) return;
  for (const auto& [vgpu, lengths] : wanted) {
    Entry& entry = entries_[vgpu];
    entry.slice = lengths.first;
    entry.later_slice = lengths.of_later();
    for (auto& [number, process] : entry.processes) process.has_later = process.later;
  }
  changed_ = wanted;
  changed_at_ = now_;
}

// Processes go first, or later, that did not when time slices were changed last.
bool TimeSliceWeights::is_ordered_anew(const std::pair<const VgpuId, Lengths>& wanted) const {
  const auto before = changed_.find(wanted.first);
  if (before != changed_.end() && (before->second.later == 0) != (wanted.second.later == 0)) return true;
  const auto& processes = entries_.at(wanted.first).processes;
  return std::any_of(processes.begin(), processes.end(),
                     [](const auto& process) { return process.second.later != process.second.has_later; });
}

// What all have between two changes at least, so that the last of them have their turns. Who wants a bound on its
// latency cannot wait.
Time TimeSliceWeights::whole_round() {
  if (tightest() || changed_.size() < 2) return 0;
  const Entry gone;
  Time round = 0;
  for (const auto& [vgpu, lengths] : changed_) {
    const auto found = entries_.find(vgpu);
    const Entry& entry = found == entries_.end() ? gone : found->second;
    round += entry.active_processes * (lengths.first + options_.switch_cost) -
             entry.later_processes * (lengths.first - lengths.of_later());
  }
  return std::min(round, 2 * options_.most_turn);  // one for learning may be much longer than it turns out to be needed
}

// Somebody's work takes another number of time slices then. What all have in a round changes by leaps there, and only
// by turns of both they get what lies between.
bool TimeSliceWeights::changes_visits(const std::map<VgpuId, Lengths>& wanted) const {
  for (const auto& [vgpu, lengths] : wanted) {
    const Entry& entry = entries_.at(vgpu);
    if (entry.active_processes > 1) continue;
    for (const auto& [number, process] : entry.processes) {
      if (!fills_slices(process)) continue;
      if ((process.burst <= entry.slice) != (process.burst <= lengths.first)) return true;
    }
  }
  return false;
}

// It has little work at a time, and would need less than it was promised if it never waited.
bool TimeSliceWeights::needs_little(const Entry& entry) const {
  double part = 0;
  for (const auto& [number, process] : entry.processes) {
    if (!works(process)) continue;
    const auto burst = static_cast<double>(process.burst);
    part += burst / (burst + process.mean_idle());
  }
  return is_bursty(entry) && part < entry.fraction;
}

// For how long others together may hold up `entry`, for the sake of `beside`; 0: for as long as their shares have it.
Time TimeSliceWeights::longest_wait(const Entry& entry, const Entry& beside) const {
  if (!entry.active || &entry == &beside) return 0;
  const bool goes_first = entry.share.priority > beside.share.priority && needs_little(entry);
  if (!goes_first) return entry.latency;
  return entry.latency == 0 ? options_.later_most : std::min(entry.latency, options_.later_most);
}

// A time slice of this one, within what others may wait for it.
Time TimeSliceWeights::bounded(Time slice, const Entry& entry) const {
  Time bound = kLongest;
  for (const auto& [vgpu, other] : entries_) {
    if (const Time wait = longest_wait(other, entry); wait != 0) bound = std::min(bound, wait);
  }
  if (bound == kLongest) return slice;
  // All processes that do not have the bound run once while it waits.
  Time processes = 0;
  for (const auto& [vgpu, other] : entries_) {
    const Time wait = longest_wait(other, entry);
    if (other.active && (wait == 0 || wait > bound)) processes += other.active_processes;
  }
  const Time left = bound / std::max<Time>(processes, 1) - options_.latency_cost;
  return std::min(slice, std::max(left, options_.shortest));
}

}  // namespace bandsaw::sched
