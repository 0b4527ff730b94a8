#include "vgpu-sched/slice/coscheduler.h"

#include <algorithm>
#include <iterator>

namespace bandsaw::slice {

Error CoScheduler::grid_slice_done(KernelId id, Blocks first, Time now, bool* over) {
  Blocks blocks = 0;
  const Error error = queues_.grid_slice_done(id, first, later(now), over, &blocks);
  if (error == Error::kNone && meter_ != nullptr) review_pair(meter_->grid_slice_done(id, blocks, now_));
  return error;
}

Error CoScheduler::claimed(KernelId id, Blocks done, int resident, Time seen) {
  const Error error = queues_.progress(id, done);
  if (error == Error::kNone && meter_ != nullptr) review_pair(meter_->claimed(id, done, resident, seen));
  return error;
}

// Other things were known when it was planned.
void CoScheduler::review_pair(bool measured) {
  if (measured && (planner_->tries() || meter_->throughput() < 1)) replan();
}

std::span<const ReadyKernel> CoScheduler::choose_from() {
  const auto& ready = queues_.ready();
  const auto oldest =
      std::find_if(ready.begin(), ready.end(), [](const ReadyKernel& kernel) { return kernel.left > 0; });
  if (oldest != ready.end() && oldest->alone) return {&*oldest, 1};
  if (std::none_of(ready.begin(), ready.end(), [](const ReadyKernel& kernel) { return kernel.alone; })) return ready;
  chosen_.clear();
  std::copy_if(ready.begin(), ready.end(), std::back_inserter(chosen_),
               [](const ReadyKernel& kernel) { return !kernel.alone; });
  return chosen_;
}

void CoScheduler::make_plan() {
  planned_ = true;
  planned_at_ = queues_.changes();
  ++plans_;
  const std::span<const ReadyKernel> ready = choose_from();
  plan_ = planner_->plan({.ready = ready}, now_);
  if (!ready.empty() && ready[0].alone) {
    for (Part& part : plan_.parts) {
      part.resident = 0;  // as many as it likes
      if (part.slice == 0) part.slice = ready[0].minimum;
    }
  }
  if (meter_ == nullptr) return;
  // The two that run in grid slices; others beside them are short.
  std::vector<SpeedMeter::Side> sides;
  for (const Part& part : plan_.parts) {
    const ReadyKernel* kernel = queues_.find_ready(part.kernel);
    if (kernel == nullptr || part.slice == 0 || part.resident == 0) continue;
    sides.push_back({.kernel = part.kernel, .shape = kernel->shape, .resident = part.resident});
  }
  if (sides.size() == 2) {
    meter_->start(sides[0], sides[1]);
  } else {
    meter_->stop();
  }
}

std::optional<Issue> CoScheduler::next(Time now) {
  later(now);
  if (!planned_ || planned_at_ != queues_.changes()) make_plan();
  // Those with fewer grid slices in flight first, so that the kernels of a pair alternate.
  const Part* best = nullptr;
  int fewest = 0;
  for (const Part& part : plan_.parts) {
    const ReadyKernel* kernel = queues_.find_ready(part.kernel);
    if (kernel == nullptr) continue;
    const bool resize = plan_.sharing == Sharing::kPersistent && part.resident > 0 && kernel->in_flight > 0 &&
                        part.resident != queues_.resident(part.kernel);
    const bool room = kernel->left > 0 && kernel->in_flight < std::max(part.in_flight, 1);
    if (!resize && !room) continue;
    if (best != nullptr && kernel->in_flight >= fewest) continue;
    best = &part;
    fewest = kernel->in_flight;
  }
  if (best == nullptr) return std::nullopt;
  return issue(*best);
}

std::optional<Issue> CoScheduler::issue(const Part& part) {
  const bool persistent = plan_.sharing == Sharing::kPersistent && part.resident > 0;
  Issue issue{.kind = Issue::Kind::kGridSlice,
              .sharing = plan_.sharing,
              .kernel = part.kernel,
              .range = {},
              .resident = part.resident};
  const bool running = queues_.find_ready(part.kernel)->in_flight > 0;
  if (persistent && running && part.resident != queues_.resident(part.kernel)) {
    issue.kind = Issue::Kind::kPersistent;
  } else {
    issue.range = queues_.take(part.kernel, part.slice > 0 && !persistent ? part.slice : ~Blocks{0});
  }
  if (persistent) queues_.set_resident(part.kernel, part.resident);
  return issue;
}

}  // namespace bandsaw::slice
