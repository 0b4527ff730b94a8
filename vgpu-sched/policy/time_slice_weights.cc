#include "vgpu-sched/policy/time_slice_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "vgpu-sched/policy/promised.h"

namespace bandsaw::sched {
namespace {

// A longer span between two calls says nothing about who had the engine meanwhile.
constexpr Time kSpanMost = 100 * kMillisecond;
constexpr Time kLongRun = 500 * kMillisecond;
constexpr double kYieldLeast = 0.7, kYieldMost = 1.2;
constexpr Time kYieldLearnt = 300 * kMillisecond;  // of work
// A pause counts as progress up to this part of the work before it: longer ones are of programs that need only a part
// of the GPU, and may have it.
constexpr double kPausePart = 1.0 / 32;
// Who fills its time slices beside others that do not swings around its promise, and is to have it all the same.
constexpr double kBesideBursts = 1.005;
// How deep the bucket of a cap is: it may be used in bursts of this length.
constexpr Time kCapBurst = 30 * kMillisecond;

}  // namespace

void TimeSliceWeights::set(VgpuId vgpu, const Share& share, Time latency) {
  Entry& entry = entries_[vgpu];
  entry.share = share;
  entry.latency = latency;
  entry.tokens = std::min(entry.tokens, static_cast<double>(kCapBurst) * share.cap / 100);
  share_out();
  fit_slices();
}

void TimeSliceWeights::remove(VgpuId vgpu) {
  entries_.erase(vgpu);
  share_out();
  fit_slices();
}

void TimeSliceWeights::advance(Time now, std::span<const Load> loads) {
  const Time span = std::clamp<Time>(now - now_, 0, kSpanMost);
  now_ = std::max(now, now_);
  const bool bursts = has_bursty();
  for (auto& [vgpu, entry] : entries_) {
    const double burst = static_cast<double>(kCapBurst) * entry.share.cap / 100;
    entry.tokens = std::min(burst, entry.tokens + static_cast<double>(span) * entry.share.cap / 100);
    entry.lag += static_cast<double>(span) * entry.fraction * (bursts && !is_bursty(entry) ? kBesideBursts : 1);
    entry.behind += too_little(entry) * static_cast<double>(span) * entry.fraction;
  }
  constexpr auto kLeftMost = static_cast<double>(kLongRun);
  left_ = std::clamp(left_ + settle(loads), -kLeftMost, kLeftMost);
  serve(static_cast<double>(span));
  note(loads);
  share_out();
  settle_lags();
  note_rates(static_cast<double>(span));
  fit_keeps();
  fit_slices();
}

// Programs that rested are charged what they had. Returns the sum of what goes back; what more they had is taken off.
double TimeSliceWeights::settle(std::span<const Load> loads) {
  double back = 0;
  for (const Load& load : loads) {
    const auto found = entries_.find(load.vgpu);
    if (found == entries_.end()) continue;
    TimeSliceProcess& process = found->second.processes[load.process];
    const Time ended = load.measured - std::exchange(process.measured, load.measured);
    const Time own = std::max<Time>(load.own - std::exchange(process.own, load.own), 0);
    process.unrested = std::min(process.unrested + std::max<Time>(ended, 0), kLongest);
    found->second.own += static_cast<double>(own);
    process.unrested_own = std::min(process.unrested_own + own, process.unrested);
    if (std::exchange(process.cut_samples, load.cut_samples) != load.cut_samples) process.unlearnt_at = now_;
    if (std::exchange(process.learnt, load.learnt) != load.learnt) {
      process.unlearnt_at = -kLongest;
      found->second.probes = 0;
    }
    const Time paused = load.paused - std::exchange(process.paused, load.paused);
    pause(found->second, process, paused);
    const Time done = load.done - std::exchange(process.done, load.done);
    if (found->second.keeps) charge(found->second, -process.note_done(done));
    const std::uint32_t rests = load.rests - std::exchange(process.rests, load.rests);
    const Time issued = load.issued - std::exchange(process.issued, load.issued);
    process.note_rests(rests, paused, issued);
    if (rests != 0) back += rested(found->second, process, rests);
    if (rests == 0 && process.unrested > process.burst) {
      process.had_at_least(process.served(found->second.slice_of(process)));
    }
    // How the first and the last time slice of so long a run were does not matter.
    if (process.unrested > kLongRun) process.restart(kLongest);
  }
  return back;
}

// A program that waits for its results gives the engine back when its work is done, before its time slice is over.
double TimeSliceWeights::rested(Entry& entry, TimeSliceProcess& process, std::uint32_t rests) {
  if (entry.keeps) {  // it had its time slices, pauses and all
    entry.keep_rests += rests;
    process.restart(kLongest);
    return 0;
  }
  if (process.burst == kLongest) {  // of this run only the end is known
    process.restart(kLongest - 1);
    return 0;
  }
  const Time slice = entry.slice_of(process);
  const bool alone = process.had_all(), is_long = process.taken >= static_cast<double>(kShortBurst);
  double had = std::max(process.served(slice * rests), process.certain(slice));
  if (is_long && rests == 1 && !alone) had = process.as_alone(had);
  // Each rest of it cost switches, whoever had the engine when samples were taken.
  const double switched = alone ? 0 : std::max(0.0, rests * switches_of_one(active_processes()) - process.switched);
  // What it loses at every interruption went to nobody: who never rests is charged its fraction of that.
  const double lost = std::max(0.0, process.taken - std::max(process.charged, had));
  const double beyond = process.taken - had - switched - lost * (1 - unresting_fraction());
  charge(entry, had - process.charged);
  entry.behind -= rests * (process.mean_idle() - process.mean_pause);
  process.pause_left = kPausePart * had;
  if (is_long) {
    const double weight = std::min(0.5, process.taken / static_cast<double>(kYieldLearnt));
    process.yield += weight * (std::clamp(had / process.taken, kYieldLeast, kYieldMost) - process.yield);
  }
  const Time each = static_cast<Time>(had / rests);
  if (process.unrested - process.unrested_own <= slice * rests) process.note_whole(each, alone);
  process.restart(process.burst == kLongest - 1 ? each : process.burst + (each - process.burst) / 4);
  return beyond;
}

double TimeSliceWeights::unresting_fraction() const {
  double sum = 0;
  for (const auto& [vgpu, entry] : entries_) {
    const bool any = std::ranges::any_of(
        entry.processes, [](const auto& process) { return process.second.busy && process.second.never_rests(); });
    if (any) sum += entry.fraction;
  }
  return sum;
}

// The engine was not its own meanwhile, so only its lag changes.
void TimeSliceWeights::pause(Entry& entry, TimeSliceProcess& process, Time paused) {
  const double counted = std::clamp<double>(static_cast<double>(paused), 0, process.pause_left);
  process.pause_left -= counted;
  entry.lag -= counted / entry.active_processes;
  entry.behind -= static_cast<double>(paused);
  if (process.burst > entry.slice_of(process))
    process.ahead += static_cast<double>(std::clamp<Time>(paused, 0, kSpanMost));
}

// Who comes back after a pause, with work for several time slices, is served as soon as the others have had theirs, and
// these began in the pause: so much of the time now is its own. Returns what is left of a span. `visits`: what all who
// have work use of their time slices, in sum.
double TimeSliceWeights::go_ahead(double span, double visits) {
  double own = 0;
  for (auto& [vgpu, entry] : entries_) {
    for (auto& [number, process] : entry.processes) {
      if (!process.busy || process.ahead <= 0) continue;
      const double visit = process.visit(entry.slice_of(process));
      process.ahead = std::min({process.ahead, visits - visit, visit});
      const double first = std::min(process.ahead, span - own);
      process.ahead -= first;
      process.charged += first;
      process.taken += first;
      charge(entry, first);
      own += first;
    }
  }
  return span - own;
}

// Divides a span among those who had work when it began, as the hardware does. What those who rested had less or more
// than they were charged belongs to those who never rest: of the others it is known what they have.
void TimeSliceWeights::serve(double span) {
  double turn = 0, longest_turn = 0, unresting = 0;
  int busy = 0, filling = 0;
  for (const auto& [vgpu, entry] : entries_) {
    for (const auto& [number, process] : entry.processes) {
      if (!process.busy) continue;
      const Time slice = entry.slice_of(process);
      turn += process.visit(slice);
      if (process.never_rests()) unresting += static_cast<double>(slice);
      longest_turn += static_cast<double>(slice);
      ++busy;
      if (process.burst > slice) ++filling;
    }
  }
  const double visits = turn;
  const double switches = busy > 1 ? busy * static_cast<double>(options_.switch_cost) : 0;
  turn += switches;
  longest_turn += switches;
  if (busy > 1) {
    count_cost(span);
    span = go_ahead(span, visits);
  }
  if (unresting == 0) left_ = 0;
  // Nobody is charged less than nothing, or much at a time.
  const double left = unresting == 0 ? 0 : std::clamp(left_, -span * unresting / turn, span);
  left_ -= left;
  for (auto& [vgpu, entry] : entries_) {
    for (auto& [number, process] : entry.processes) {
      if (!process.busy) continue;
      const Time own_slice = entry.slice_of(process);
      const double used = process.visit(own_slice);
      const double taken = span * used / turn;
      const double part_of_left = process.never_rests() ? left * used / unresting : 0;
      const double own = taken * process.yield + part_of_left;
      process.taken += taken;
      if (entry.keeps) {
        process.kept_taken += taken + part_of_left;
        process.kept_charged += own;
      }
      process.charged += own;
      process.wall += span;
      const auto slice = static_cast<double>(own_slice);
      const double rounds = span / (turn - used + slice);  // while it fills its time slices
      process.rounds += rounds;
      process.filled += rounds * slice;
      // Between the rests of others that never have more than a time slice it may have had a turn in none.
      const bool others_fill = filling > (process.burst > own_slice ? 1 : 0);
      if (busy == 1 || others_fill) process.least += span * slice / longest_turn;
      if (busy > 1) process.switched += span / turn * switches_of_one(busy);
      // It has more at a time than it has said.
      process.had_at_least(process.certain(own_slice));
      const auto native = static_cast<double>(std::clamp<Time>(process.burst, 1, options_.native));
      charge(entry, own + std::min(rounds, taken / native) * switches_within(entry));
    }
  }
}

// What switches cost that there are for one time slice of one of so many processes. Of two, the other would have none.
double TimeSliceWeights::switches_of_one(int processes) const {
  return static_cast<double>(options_.switch_cost) * (processes == 2 ? 2 : 1);
}

// What a time slice of one of its processes loses by switches to the others of its own: it is its own loss, as far as
// it would be with the driver's time slices. Shorter ones are there for others.
double TimeSliceWeights::switches_within(const Entry& entry) const {
  const auto working = std::count_if(entry.processes.begin(), entry.processes.end(),
                                     [](const auto& process) { return process.second.busy; });
  return working == 0 ? 0 : static_cast<double>(options_.switch_cost) * (1 - 1.0 / static_cast<double>(working));
}

void TimeSliceWeights::charge(Entry& entry, double time) {
  entry.used += time;
  entry.lag -= time;
  entry.behind -= time;
  entry.tokens -= time;
}

// Who has work from now on. Processes that are gone are forgotten.
void TimeSliceWeights::note(std::span<const Load> loads) {
  for (auto& [vgpu, entry] : entries_) {
    for (auto& [number, process] : entry.processes) process.seen = process.busy = false;
  }
  for (const Load& load : loads) {
    const auto found = entries_.find(load.vgpu);
    if (found == entries_.end()) continue;
    TimeSliceProcess& process = found->second.processes[load.process];
    process.seen = true;
    process.busy = load.busy;
    process.priority = load.priority;
    if (load.busy) process.last_busy = found->second.last_busy = now_;
  }
  for (auto& [vgpu, entry] : entries_) {
    const bool gone = std::erase_if(entry.processes, [](const auto& process) { return !process.second.seen; }) != 0;
    const bool worked_last = std::ranges::any_of(
        entry.processes, [&](const auto& process) { return process.second.last_busy == entry.last_busy; });
    if (gone && !worked_last) forget_keep(entry);
    const auto active = std::count_if(entry.processes.begin(), entry.processes.end(), [&](const auto& process) {
      return now_ - process.second.last_busy <= options_.memory;
    });
    entry.active_processes = std::max(1, static_cast<int>(active));
    order_processes(entry);
  }
}

// Who is active, and the fraction promised to each of them: the shares, scaled until they fill the engine within
// reservations and caps.
void TimeSliceWeights::share_out() {
  const double common = common_lag();
  std::vector<Share> active;
  std::vector<Entry*> begin;
  for (auto& [vgpu, entry] : entries_) {
    const bool was_active = entry.active;
    entry.active = now_ - entry.last_busy <= (is_bursty(entry) ? options_.burst_memory : options_.memory);
    if (entry.active && !was_active) begin.push_back(&entry);
    if (!entry.active) entry.lag = std::clamp<double>(entry.lag, 0, static_cast<double>(options_.carry));
    if (entry.active) active.push_back(entry.share);
  }
  const double scale = scale_to_fill(active);
  for (auto& [vgpu, entry] : entries_) {
    const double fraction = entry.active ? part_of(entry.share, scale) : 0;
    if (std::exchange(entry.fraction, fraction) != fraction) shared_since_ = now_;
  }
  for (Entry* const entry : begin) entry->lag += common * entry->fraction;
}

// What those who fill their time slices all lack, per fraction: who comes to them is to lack it too, or it would have
// less than each of them.
double TimeSliceWeights::common_lag() const {
  double sum = 0;
  int count = 0;
  for (const auto& [vgpu, entry] : entries_) {
    if (!entry.active || entry.fraction <= 0 || is_bursty(entry)) continue;
    sum += entry.lag / entry.fraction;
    ++count;
  }
  return count == 0 ? 0 : std::max(0.0, sum / count);
}

// What one did that has had no work for long, as one that waits for the next program, does not matter.
bool TimeSliceWeights::works(const TimeSliceProcess& process) const {
  return now_ - process.last_busy <= options_.burst_memory;
}

// Whether it has so little at a time that only shorter time slices of others would help it.
bool TimeSliceWeights::is_bursty(const Entry& entry) const {
  bool any = false;
  for (const auto& [number, process] : entry.processes) {
    if (!works(process)) continue;
    if (process.burst >= std::min(entry.slice_of(process), kShortBurst)) return false;
    any = true;
  }
  return any;
}

bool TimeSliceWeights::has_bursty() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [this](const auto& entry) { return entry.second.active && is_bursty(entry.second); });
}

// Lags per fraction. What is beyond the bound is forgotten. What all lack who fill their time slices is owed to none of
// them, if it is more than half the bound, and what all of them have too much is taken from none: so their distances
// stay, and they can still be behind or ahead of those who do not fill theirs. These cannot catch up on what they left
// to others, so beside them being ahead counts for little: it would cost the others what they are promised now.
void TimeSliceWeights::settle_lags() {
  const auto most = static_cast<double>(options_.lag_most);
  double least = most, largest = -most;
  for (const auto& [vgpu, entry] : entries_) {
    if (!entry.active || is_bursty(entry)) continue;
    least = std::min(least, entry.lag / entry.fraction);
    largest = std::max(largest, entry.lag / entry.fraction);
  }
  const double ahead = has_bursty() ? most / 16 : most / 2;
  const double common = std::max(least - most / 2, 0.0) + std::min(largest + ahead, 0.0);
  for (auto& [vgpu, entry] : entries_) {
    if (!entry.active) continue;
    const double lag = entry.lag / entry.fraction - (is_bursty(entry) ? 0 : common);
    entry.lag = std::clamp(lag, -most, most) * entry.fraction;
  }
}

// Whose bound makes the others' time slices as short as they are.
TimeSliceWeights::Entry* TimeSliceWeights::tightest() {
  Entry* tightest = nullptr;
  for (auto& [vgpu, entry] : entries_) {
    if (entry.active && entry.latency != 0 && (!tightest || entry.latency < tightest->latency)) tightest = &entry;
  }
  return tightest;
}

// Switches of others that there would not be without a bound: of who fills its time slices, one for each.
void TimeSliceWeights::count_cost(double span) {
  Entry* const bound = tightest();
  if (!bound) return;
  double turn = 0, extra = 0;
  for (const auto& [vgpu, entry] : entries_) {
    for (const auto& [number, process] : entry.processes) {
      if (!process.busy) continue;
      const Time has = std::min(entry.slice_of(process), process.burst),
                 would_have = std::min(entry.unbounded, process.burst);
      turn += static_cast<double>(has + options_.switch_cost);
      // In the time of one of its time slices of now, it would have this part of a longer one.
      if (&entry != bound && !process.later && would_have > has)
        extra += 1 - static_cast<double>(has) / static_cast<double>(would_have);
    }
  }
  if (turn > 0) bound->cost += span / turn * extra * static_cast<double>(options_.switch_cost);
}

Time TimeSliceWeights::latency_cost(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found == entries_.end() ? 0 : static_cast<Time>(found->second.cost);
}

Time TimeSliceWeights::slice(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found == entries_.end() ? 0 : found->second.slice;
}

Time TimeSliceWeights::used(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found == entries_.end() ? 0 : static_cast<Time>(found->second.used);
}

bool TimeSliceWeights::may_run(VgpuId vgpu) const {
  const auto found = entries_.find(vgpu);
  return found == entries_.end() || found->second.share.cap >= 100 || found->second.tokens >= 0;
}

int TimeSliceWeights::active() const {
  return static_cast<int>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.second.active; }));
}

int TimeSliceWeights::active_processes() const {
  int sum = 0;
  for (const auto& [vgpu, entry] : entries_) sum += entry.active ? entry.active_processes : 0;
  return sum;
}

}  // namespace bandsaw::sched
