// Keeping the compute engine over the short pauses of a program, where the arbiter asks for it.
#include <algorithm>

#include "backend/runner/execution/gate.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// A pause that lasts longer is one of a program that has nothing to do: the engine is for others.
constexpr std::chrono::milliseconds kKeepMost{1};
// Short work that has not ended for so long, whatever time slices others have, may wait for the place that the
// keep-alive takes: blocks that wait for one another on a device that is full. A program that has such is not kept
// again.
constexpr std::chrono::milliseconds kStalled{100};
constexpr int kStallsMost = 3;
// A kernel whose blocks fill the device once lasts longer where one of them has to wait for the place that the
// keep-alive takes. A program whose time slices take so many times as long as its launches by themselves, and lose more
// by it than two switches would take, is not kept again, once so many more of them do than do not. One that takes
// longer still was interrupted by others.
constexpr double kSlow = 1.3, kInterrupted = 3;
// From then on the keep-alive is tried behind its work rather than beside it.
constexpr double kLittleSlow = 1.03;
constexpr double kTimesLearnt = 50e6;  // ns of work
constexpr double kSwitchesNs = 2 * 170'000;
constexpr int kSlowMost = 50;

uint64_t nanoseconds(Clock::Point::duration time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

}  // namespace

// With a time slice just begun. It is one more in flight, so the gate does not come to rest.
void GateView::keep_engine() {
  if (cannot_keep_ || keep_stalls_ >= kStallsMost || kept_slow_ >= kSlowMost || keeps_engine_.exchange(true)) return;
  kept_since_ = clock_.now();
  engine_states_[kCompute].in_flight.fetch_add(1);
  grant_page_->gates[slot_][kCompute].begun.fetch_add(1);
  if (device_->keep_engine([this] { return keeps_on(); }, [this] { let_engine_go(); })) return;
  cannot_keep_ = true;
  let_engine_go();
}

Keep GateView::keeps_on() {
  const bool wanted = grant_page_->keep_engine.load(std::memory_order_relaxed) != 0 && is_governed();
  if (!wanted || !is_wide_open(kCompute)) return Keep::kNot;
  const Clock::Point now = clock_.now(), since = kept_since_;
  const bool ahead = issues_ahead_.load(std::memory_order_relaxed);
  const Keep before = keep_trial_.way();
  if (kept_slow_ >= kSlowMost && ahead && keep_trial_.leave_side(now)) kept_slow_ = 0;
  if (kept_slow_ >= kSlowMost) return Keep::kNot;
  const EngineState& state = engine_states_[kCompute];
  const auto quiet = now - std::max(state.ended_at.load(), since);
  const bool pauses = state.in_flight == 1;
  if (!pauses && quiet > kStalled) ++keep_stalls_;
  if (quiet > (pauses ? std::chrono::nanoseconds(kKeepMost) : kStalled)) return Keep::kNot;
  const Keep way =
      keep_trial_.ask(now, since, {.done_ns = kept_done_ns_, .ahead = ahead, .slow = kept_times_ > kLittleSlow});
  if (way != before) {
    log::debug("the engine is kept {} the program's work, which takes {:.2f} times as long as by itself",
               way == Keep::kBehindWork ? "behind" : "beside", kept_times_.load());
  }
  return way;
}

void GateView::note_kept(const TimeSlice& slice, uint64_t busy_ns) {
  const double alone = static_cast<double>(slice.own_ns) * std::max<double>(gaps_, 1);
  const double times = static_cast<double>(busy_ns) / alone;
  kept_done_ns_ += slice.own_ns;
  if (slice.own_ns == 0 || times > kInterrupted) return;
  kept_times_ = kept_times_ + (times - kept_times_) * alone / (alone + kTimesLearnt);
  if (kept_slow_ >= kSlowMost) return;
  if (times > kSlow && static_cast<double>(busy_ns) - alone > kSwitchesNs) {
    ++kept_slow_;
  } else if (kept_slow_ > 0) {
    --kept_slow_;
  }
}

// A program by itself may put many steps into one time slice.
void GateView::note_step_within() {
  const TimeSlice& slice = engine_states_[kCompute].slice;
  if (slice.alone && step_times_.has_waited() && device_->time_slices_over(kCompute)) note_step(clock_.now(), false);
}

// The last step is over, and the time slice that has begun holds the first work of the next. `after_pause`: the device
// was seen to have nothing to do; a long pause belongs to no step.
void GateView::note_step(Clock::Point now, bool after_pause) {
  const EngineState& state = engine_states_[kCompute];
  step_alone_ &= state.slice.alone;
  if (!step_times_.may_end()) return;
  const auto took = now - step_begun_, worked = std::max(took - step_paused_, Clock::Point::duration(0));
  const bool paused = after_pause && now - state.ended_at.load() > kKeepMost;
  if (step_alone_) {
    step_times_.end_alone(paused ? 0 : nanoseconds(took), nanoseconds(worked));
  } else {
    const StepTimes::Takes takes = step_times_.end();
    step_launches_.store(takes.launches, std::memory_order_relaxed);
    if (step_kept_) grant_page_->gates[slot_][kCompute].steps_ns.fetch_add(takes.step_ns);
  }
  step_begun_ = now;
  step_paused_ = {};
  step_alone_ = state.slice.alone;
  step_kept_ = state.slice.kept;
}

void GateView::let_engine_go() {
  keeps_engine_ = false;
  ended(kCompute, 0, 0);
}

}  // namespace bandsaw::runner
