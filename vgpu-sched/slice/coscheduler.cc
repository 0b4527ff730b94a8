#include "vgpu-sched/slice/coscheduler.h"

#include <algorithm>

namespace bandsaw::slice {

Error CoScheduler::slice_done(KernelId id, Blocks first, Time now, bool* over) {
  Blocks blocks = 0;
  const Error error = queues_.slice_done(id, first, later(now), over, &blocks);
  if (error == Error::kNone && meter_ != nullptr) meter_->slice_done(id, blocks, now_);
  return error;
}

void CoScheduler::make_plan() {
  planned_ = true;
  planned_at_ = queues_.changes();
  ++plans_;
  plan_ = planner_->plan({.ready = queues_.ready()}, now_);
  if (meter_ == nullptr) return;
  meter_->stop();
  if (plan_.parts.size() != 2 || plan_.sharing != Sharing::kSpace) return;
  const Part& a = plan_.parts[0];
  const Part& b = plan_.parts[1];
  const ReadyKernel* first = queues_.find_ready(a.kernel);
  const ReadyKernel* second = queues_.find_ready(b.kernel);
  if (first == nullptr || second == nullptr || a.slice == 0 || b.slice == 0) return;
  meter_->start({.kernel = a.kernel, .shape = first->shape, .resident = a.resident},
                {.kernel = b.kernel, .shape = second->shape, .resident = b.resident});
}

std::optional<Issue> CoScheduler::next(Time now) {
  later(now);
  if (!planned_ || planned_at_ != queues_.changes()) make_plan();
  // Those with fewer slices in flight first, so that the kernels of a pair alternate.
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
  Issue issue{.kind = Issue::Kind::kSlice,
              .sharing = plan_.sharing,
              .kernel = part.kernel,
              .range = {},
              .resident = part.resident};
  const bool running = queues_.find_ready(part.kernel)->in_flight > 0;
  if (persistent && running && part.resident != queues_.resident(part.kernel)) {
    issue.kind = Issue::Kind::kResident;
  } else {
    issue.range = queues_.take(part.kernel, part.slice > 0 && !persistent ? part.slice : ~Blocks{0});
  }
  if (persistent) queues_.set_resident(part.kernel, part.resident);
  return issue;
}

}  // namespace bandsaw::slice
