#include "backend/runner/slicing/cut_launch.h"

#include <algorithm>
#include <utility>

#include "backend/runner/handlers/handlers.h"
#include "backend/runner/slicing/counting_launch.h"
#include "backend/runner/slicing/persistent_launch.h"
#include "backend/runner/slicing/sliced_launch.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

CutLaunch::CutLaunch(SlicingParts* parts, const LaunchCaller& caller, const StreamRef& stream, const Launch& launch,
                     const LaunchChoice& choice)
    : parts_(*parts), launch_(caller, stream, launch), stall_watch_(parts->clock.now()) {
  const SlicingSettings& settings = parts_.settings;
  const bool chosen_by_plan = settings.variant == VariantChoice::kAuto && parts_.gate.is_planned(kCompute);
  LaunchShape* const shape = choice.shape.get();
  launch_.kernel = choice.kernel;
  launch_.shape = choice.shape;
  launch_.flight = std::make_shared<Flight>(parts_.wake);
  if (shape && !choice.clone->persistent) {
    shape->size.run_beside(settings.in_flight, choice.clone->dependency == ptx::InterBlockDependency::kNone);
  }
  launch_.size = shape ? shape->size.blocks() : settings.force_blocks;
  if (chosen_by_plan) launch_.tuned_blocks = slice::PersistentTuner::kSliced;
}

std::unique_ptr<CutLaunch> CutLaunch::make(SlicingParts* parts, const LaunchCaller& caller, const StreamRef& stream,
                                           const Launch& launch, const LaunchChoice& choice) {
  std::unique_ptr<CutLaunch> made(new CutLaunch(parts, caller, stream, launch, choice));
  std::string why_not;
  made->variant_ = CountingLaunch::make(parts, &made->launch_, choice.clone);
  if (!made->variant_) made->variant_ = made->variant_of(choice.clone, &why_not);
  if (!made->variant_) {
    if (!parts->variants.turns_to_grid_slices(*choice.kernel)) parts->stats.refused(*choice.kernel, why_not);
    return nullptr;
  }
  const bool chosen_by_plan = parts->settings.variant == VariantChoice::kAuto && parts->gate.is_planned(kCompute);
  made->launch_.alone = choice.shape && chosen_by_plan && choice.shape->wants_alone();
  return made;
}

std::unique_ptr<LaunchVariant> CutLaunch::variant_of(const std::shared_ptr<const KernelClone>& clone,
                                                     std::string* why_not) {
  if (clone->persistent) return PersistentLaunch::make(&parts_, &launch_, clone, why_not);
  return std::make_unique<SlicedLaunch>(&parts_, &launch_, clone);
}

// The stream has nothing behind these copies yet: what would wait for this launch waits until it is issued.
void CutLaunch::await_copies() {
  if (!parts_.settings.await_copies || !parts_.gate.is_planned(kCompute)) return;
  launch_.flight->waits = true;
  parts_.device.stream_when_done(launch_.stream, [flight = launch_.flight](CUresult) {
    flight->waits = false;
    flight->notify();
  });
}

CutLaunch::Progress CutLaunch::advance() {
  Progress progress;
  if (launch_.flight->waits) return progress;
  if (is_stalled()) {
    launch_.stall(parts_);
    if (const CUresult result = variant_->issue_rest(); result != CUDA_SUCCESS) fail(result);
  }
  if (variant_->turns() && launch_.flight->launches == 0) turn();
  for (variant_->look(); variant_->may_issue(); variant_->look()) {
    parts_.describer.describe(launch_, *variant_);
    if (!parts_.gate.enter_alone(kCompute, 1, caller().stream_key, variant_->next_id())) {
      launch_.held_up |= launch_.begun != 0 && parts_.gate.kept_out();
      progress.at_gate = true;
      break;
    }
    progress.issued = true;
    issue();
  }
  progress.over = launch_.next == launch_.blocks;
  return progress;
}

void CutLaunch::issue() {
  const bool first = launch_.begun == 0;
  const CUresult result = variant_->issue();
  if (result != CUDA_SUCCESS) return first ? run_whole() : fail(result);
  if (!first) return;
  launch_.kernel->cut = true;
  count(parts_.stats.counters().launches);
}

// The device takes no grid slice of it: the launch has the time slice of the first one.
void CutLaunch::run_whole() {
  const CUresult result = parts_.device.launch(launch_.stream, launch_.program);
  if (result != CUDA_SUCCESS) return fail(result);  // it is no launch at all
  count(parts_.stats.counters().fallbacks);
  parts_.stats.refused(*launch_.kernel, "the device launches it, but not its rewritten variant");
  launch_.kernel->whole = true;
  launch_.next = launch_.blocks;
}

bool CutLaunch::may_advance() const {
  if (launch_.flight->waits) return false;
  return variant_->may_issue() || (variant_->turns() && launch_.flight->launches == 0);
}

// The error is the launch's.
void CutLaunch::fail(CUresult error) {
  parts_.stats.failed();
  finish_async(*launch_.caller.ring, {}, error);
  launch_.next = launch_.blocks;
}

// Goes on with what is left of the launch as another variant. Where that is refused or not ready, as this one.
void CutLaunch::turn() {
  const auto clone = variant_->turn();
  if (!clone) return;
  std::string why_not;
  auto next = variant_of(clone, &why_not);
  if (!next) {
    parts_.variants.turns_to_grid_slices(*launch_.kernel);
    return;
  }
  if (launch_.is_clean()) variant_->give_back();
  variant_ = std::move(next);
}

std::chrono::nanoseconds CutLaunch::timeout() const {
  return stall_timeout(parts_.settings, launch_.shape ? launch_.shape->typical_ns : 0);
}

bool CutLaunch::is_stalled() {
  if (!stall_watch_.is_overdue(launch_.begun, launch_.flight->launches, timeout(), parts_.clock.now())) return false;
  // If they have not begun, they wait for earlier work on the stream, not for blocks of their own grid.
  const bool begun = launch_.tracks && launch_.tracks->has_begun();
  return begun && !launch_.stalled && !variant_->goes_on();
}

std::chrono::nanoseconds CutLaunch::look_again() const {
  if (launch_.flight->waits) return std::chrono::nanoseconds::max();
  const Clock::Point now = parts_.clock.now();
  const std::chrono::nanoseconds stall = stall_watch_.deadline(timeout()) - now;
  return std::max<std::chrono::nanoseconds>(std::min(stall, variant_->look_again(now)), std::chrono::microseconds(1));
}

bool CutLaunch::is_watched() const {
  return variant_->look_again(parts_.clock.now()) != std::chrono::nanoseconds::max();
}

void CutLaunch::finish() {
  parts_.describer.withdraw(launch_);
  if (!launch_.stalled && launch_.begun > 1) launch_.kernel->in_order = true;
  if (launch_.is_clean()) variant_->give_back();
  if (launch_.tracks) {
    if (const CUresult result = launch_.tracks->join(); result != CUDA_SUCCESS) fail(result);
  }
  log::debug("{}: {} blocks in {} {}, {}", launch_.kernel->name, launch_.blocks, launch_.begun,
             variant_->clone().persistent ? "launches of persistent blocks" : "grid slices",
             launch_.paired ? "others beside it" : "alone");
  if (launch_.shape) learn();
}

void CutLaunch::learn() {
  if (launch_.call != 0) launch_.shape->paired = launch_.paired;
  // Grid slices that are planned alone always wait for their grants: that wait is part of their time.
  const bool waited = launch_.held_up && launch_.tuned_blocks != slice::PersistentTuner::kSliced;
  if (launch_.paired || waited || launch_.counted) launch_.tuned_blocks.reset();
  const bool usual = !launch_.held_up && !launch_.paired && variant_->is_comparable();
  parts_.timer.end(launch_.caller.context, launch_.stream, std::move(launch_.span),
                   [shape = launch_.shape, size = usual ? launch_.size : 0, blocks = launch_.tuned_blocks](
                       uint64_t nanoseconds) { shape->learn_cut(size, blocks, nanoseconds); });
}

}  // namespace bandsaw::runner
