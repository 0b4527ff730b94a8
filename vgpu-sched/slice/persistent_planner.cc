#include "vgpu-sched/slice/persistent_planner.h"

#include <algorithm>

#include "vgpu-sched/slice/greedy.h"

namespace bandsaw::slice {

const std::vector<double>& PersistentPlanner::times(ShapeId shape, const Fit& fit) {
  if (shape >= speeds_.size()) speeds_.resize(shape + 1);
  Speeds& speeds = speeds_[shape];
  if (speeds.version == fit.version) return speeds.block_ns;
  speeds.version = fit.version;
  speeds.block_ns.clear();
  for (int count = 1; count <= fit.resident; ++count) {
    speeds.block_ns.push_back(fit.profile.block_ns / std::max(model_.solo(shape, count), 1e-6));
  }
  return speeds.block_ns;
}

Plan PersistentPlanner::plan(const State& state, Time now) {
  Plan plan;
  plan.sharing = Sharing::kPersistent;
  for (const ReadyKernel& kernel : state.ready) {  // first, so that no later growth moves them
    if (const Fit* fit = model_.fit(kernel.shape)) times(kernel.shape, *fit);
  }
  std::vector<GreedyKernel> kernels;
  for (const ReadyKernel& kernel : state.ready) {
    const Fit* fit = model_.fit(kernel.shape);
    const bool persistent = fit != nullptr && kernel.minimum > 0;
    if (!persistent && kernel.left > 0) plan.parts.push_back({.kernel = kernel.id});
    if (!persistent) continue;
    // Blocks, not a part of them: with each shape's time per block that gives equation 1 without its division.
    const double left = static_cast<double>(kernel.blocks - std::min(kernel.done, kernel.blocks));
    kernels.push_back({.needs = fit->profile.needs, .times = times(kernel.shape, *fit), .left = left});
    plan.parts.push_back({.kernel = kernel.id, .in_flight = 1});
  }
  const std::vector<int> resident = allocate_resident(model_.gpu(), kernels);
  std::size_t next = 0;
  for (Part& part : plan.parts) {
    const auto kernel = std::find_if(state.ready.begin(), state.ready.end(),
                                     [&](const ReadyKernel& ready) { return ready.id == part.kernel; });
    const bool persistent = kernel->minimum > 0 && model_.fit(kernel->shape) != nullptr;
    if (persistent) part.resident = resident[next++];
  }
  return plan;
}

}  // namespace bandsaw::slice
