// What GateView charges for time slices that have ended, and what it learns from them.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/runner/execution/gate.h"
#include "memory/base/eventfd.h"
#include "memory/base/futex.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// What gaps and overlaps between launches may make of their time.
constexpr double kGapsLeast = 0.85, kGapsMost = 1.06;
// Between a change of the hardware's time slices and when it is seen here.
constexpr std::chrono::milliseconds kSeenAfter{3};

}  // namespace

// How long they are now; 0: there are none. When that changed is noted.
uint64_t GateView::hardware_slice() {
  const uint64_t all = grant_page_->time_slice_ns.load(std::memory_order_relaxed);
  const uint64_t own = grant_page_->gates[slot_][kCompute].own_time_slice_ns.load(std::memory_order_relaxed);
  const uint64_t length = all == 0 ? 0 : std::max(all, own);
  if (hardware_slice_ns_.exchange(length) != length) hardware_slice_since_ = clock_.now();
  return length;
}

// From the begin to the end of its work the hardware may have switched to other programs. Where the length of time
// slices changed meanwhile, their round began anew, and nothing is certain. Before its begin it may have waited for
// long: then they may have changed.
void GateView::learn_sample(const TimeSlice& slice, uint64_t busy_ns) {
  const uint64_t length = hardware_slice();
  const auto began = clock_.now() - std::chrono::nanoseconds(busy_ns);
  const bool changed = hardware_slice_since_.load() > began - kSeenAfter;
  const bool no_others = (slice.alone && is_alone() && !siblings_work()) || length == 0;
  const uint64_t fits = length - length / 8;
  if (!no_others && !beside_others_ && changed && busy_ns <= fits) return;
  uint64_t within = no_others ? LaunchTimes::kAlone : changed ? 0 : fits;
  if (beside_others_) within = slice.may_learn && may_learn() ? LaunchTimes::kAlone : 0;
  Gate& gate = grant_page_->gates[slot_][kCompute];
  const LaunchTimes::Learnt learnt = launch_times_.learn(*slice.sample, busy_ns, within, slice.sample_waited);
  if (learnt == LaunchTimes::Learnt::kCut) gate.cut_samples.fetch_add(1);
  if (learnt == LaunchTimes::Learnt::kKnown) gate.learnt.fetch_add(1);
}

// A program that is slower than the device has longer gaps, which are not its work. One whose launches overlap at their
// ends takes less time than they do one by one.
void GateView::learn_gaps(const TimeSlice& slice, uint64_t busy_ns) {
  constexpr double kLearnt = 200e6;  // ns of work
  if (slice.own_ns == 0 || !is_alone()) return;
  const auto work = static_cast<double>(slice.own_ns), ratio = static_cast<double>(busy_ns) / work;
  if (ratio < 2) gaps_ = gaps_ + (ratio - gaps_) * work / (work + kLearnt);
}

// What is known to be its own of the time from the begin to the end of its work; 0: nothing is known. In units of its
// time alone, which may be a little more than it took now. Where work is on several streams, a time slice may end
// together with the one before, which was measured for both; so what that took beyond its work counts for the next.
uint64_t GateView::own_time(const TimeSlice& slice, uint64_t busy_ns) {
  if (slice.alone && is_alone()) return busy_ns;
  if (!slice.known) return 0;
  const double in_steps = step_launches_.load(std::memory_order_relaxed);
  const double gaps = in_steps != 0 ? in_steps : std::clamp<double>(gaps_, kGapsLeast, kGapsMost);
  const double work = static_cast<double>(slice.work_ns) * gaps;
  const uint64_t most = busy_ns + busy_ns / LaunchTimes::kLittle + beyond_work_ns_.exchange(0);
  const uint64_t own = std::min(most, static_cast<uint64_t>(work));
  if (!slice.kept) beyond_work_ns_.fetch_add(most - own);
  return own;
}

// A client of MPS learns while it has the device to itself, or its kernels go before those of others.
bool GateView::may_learn() const {
  if (!beside_others_ || is_wide_open(kCompute)) return true;
  return grant_page_->goes_alone.load(std::memory_order_relaxed) != 0 && !siblings_work();
}

// A few launches that are not known are taken for as long as the others.
void GateView::note_beside(const TimeSlice& slice, uint64_t busy_ns) {
  Gate& gate = grant_page_->gates[slot_][kCompute];
  if (slice.own_ns == 0 || 4 * slice.known_units < 3 * slice.units) {
    gate.unknown_ns.fetch_add(busy_ns);
    return;
  }
  const double own =
      static_cast<double>(slice.own_ns) * static_cast<double>(slice.units) / static_cast<double>(slice.known_units);
  gate.beside_own_ns.fetch_add(std::min(busy_ns, static_cast<uint64_t>(own)));
  gate.beside_ns.fetch_add(busy_ns);
}

// What it is charged where its own time is not known.
uint64_t GateView::used(const TimeSlice& slice, uint64_t busy_ns) {
  if (slice.units == 0 || slice.left_to_others <= 0) return busy_ns;
  const double part = 1 - slice.left_to_others / static_cast<double>(slice.units);
  return static_cast<uint64_t>(static_cast<double>(busy_ns) * std::clamp(part, 0.0, 1.0));
}

// How long a unit takes: longer measurements count at once, shorter ones gradually.
void GateView::learn(EngineState& state, uint64_t units, uint64_t busy_ns) {
  if (units == 0) return;
  if (busy_ns == 0) state.unmeasured = true;
  if (busy_ns == 0) return;
  const uint64_t measured = std::max<uint64_t>(1, busy_ns * 1000 / units), known = state.unit_ps;
  state.unit_ps = measured >= known ? measured : known - (known - measured) / 4;
}

// How many units a time slice has held. One that closed early, because the program waited, lowers the number only a
// little.
void GateView::prove(EngineState& state, uint64_t units) {
  const uint64_t known = state.proven;
  state.proven = std::max<uint64_t>({1, units, known - known / 64});
}

void GateView::ended(unsigned engine, uint64_t busy_ns, uint64_t own_ns) {
  EngineState& state = engine_states_[engine];
  Gate& gate = grant_page_->gates[slot_][engine];
  gate.own_ns.fetch_add(own_ns);
  gate.busy_ns.fetch_add(busy_ns);
  state.ended_at = clock_.now();
  if (--state.in_flight == 0) {
    gate.rests.fetch_add(1, std::memory_order_relaxed);
    if (engine == kCompute) beyond_work_ns_ = 0;
  }
  gate.ended.fetch_add(1);
  futex_wake(&state.in_flight);
  if (listens_.load() && !signal_event(wake_.get())) log::warn("the gate's wake: {}", std::strerror(errno));
  if (!gate.open.load()) ring_doorbell();
}

}  // namespace bandsaw::runner
