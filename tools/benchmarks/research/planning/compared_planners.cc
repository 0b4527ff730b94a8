#include "tools/benchmarks/research/planning/compared_planners.h"

#include <algorithm>

#include "vgpu-sched/slice/grid_slice_sizes.h"
#include "vgpu-sched/slice/occupancy.h"
#include "vgpu-sched/slice/partition_search.h"

namespace bandsaw::research {
namespace {

// A grid slice that just fills the kernel's part of the GPU.
Blocks row_of(const GpuModel& gpu, int resident, Blocks minimum) {
  return std::max(static_cast<Blocks>(resident) * static_cast<Blocks>(gpu.sms), minimum);
}

}  // namespace

Plan WholePlanner::plan(const State& state, Time now) {
  Plan plan;
  plan.sharing = sharing_;
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0) plan.parts.push_back({.kernel = kernel.id});
  }
  return plan;
}

// Higher is better; below 0: they cannot share anything.
double ConsolidationPlanner::affinity(const ReadyKernel& a, const ReadyKernel& b) const {
  const Fit* first = model_.fit(a.shape);
  const Fit* second = model_.fit(b.shape);
  if (first == nullptr || second == nullptr) return -1;
  const GpuModel& gpu = model_.gpu();
  const double sms_a = static_cast<double>(a.blocks) / first->resident;
  const double sms_b = static_cast<double>(b.blocks) / second->resident;
  const double together = (sms_a + sms_b) / gpu.sms;
  if (together <= 1) return 2 - together;
  const Room room = beside(gpu, room_of(gpu), first->profile.needs, 1);
  if (fit(gpu, room, second->profile.needs) == 0) return -1;
  return 1 - (footprint(gpu, first->profile.needs, 1) + footprint(gpu, second->profile.needs, 1)) / 2;
}

Plan ConsolidationPlanner::plan(const State& state, Time now) {
  const ReadyKernel* running = nullptr;
  std::vector<const ReadyKernel*> waiting;
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0) {
      waiting.push_back(&kernel);
    } else if (running != nullptr) {
      return {};  // two run
    } else {
      running = &kernel;
    }
  }
  if (waiting.empty()) return {};
  const ReadyKernel* first = running != nullptr ? running : waiting.front();
  const ReadyKernel* second = nullptr;
  double best = -1;
  for (const ReadyKernel* other : waiting) {
    if (other == first) continue;
    const double affinity = this->affinity(*first, *other);
    if (affinity > best) {
      best = affinity;
      second = other;
    }
  }
  Plan plan;
  if (running == nullptr) plan.parts.push_back({.kernel = first->id});
  if (second != nullptr) plan.parts.push_back({.kernel = second->id});
  return plan;
}

Plan FifoGridSlicePlanner::plan(const State& state, Time now) {
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0) return {.parts = {grid_slices_alone(model_, kernel)}};
  }
  return {};
}

Plan RandomPlanner::plan(const State& state, Time now) {
  std::vector<const ReadyKernel*> kernels;
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left > 0) kernels.push_back(&kernel);
  }
  if (kernels.empty()) return {};
  std::shuffle(kernels.begin(), kernels.end(), random_);
  const ReadyKernel& a = *kernels[0];
  if (kernels.size() == 1 || a.minimum == 0) return {.parts = {grid_slices_alone(model_, a)}};
  const ReadyKernel& b = *kernels[1];
  const Fit* first = model_.fit(a.shape);
  const Fit* second = model_.fit(b.shape);
  if (b.minimum == 0 || first == nullptr || second == nullptr) return {.parts = {grid_slices_alone(model_, a)}};
  const std::vector<Ratio> ratios = ratios_of(model_.gpu(), *first, *second, 0);
  if (ratios.empty()) return {.parts = {grid_slices_alone(model_, a)}};
  const Ratio ratio = ratios[random_() % ratios.size()];
  return {.parts = {{.kernel = a.id, .slice = row_of(model_.gpu(), ratio.a, a.minimum), .resident = ratio.a},
                    {.kernel = b.id, .slice = row_of(model_.gpu(), ratio.b, b.minimum), .resident = ratio.b}}};
}

Plan EvenPlanner::together(const ReadyKernel& a, const ReadyKernel& b) const {
  GpuModel gpu = model_.gpu();
  gpu.sms = 1;  // none are given away
  const PartitionSearch search(gpu, model_.fit(a.shape)->profile.needs, model_.fit(b.shape)->profile.needs,
                               PartitionGoal::kTurnaround);
  if (search.impossible()) return {.parts = {grid_slices_alone(model_, a)}};
  const Partition& even = search.incumbent();
  return {.parts = {{.kernel = a.id, .slice = row_of(model_.gpu(), even.a, a.minimum), .resident = even.a},
                    {.kernel = b.id, .slice = row_of(model_.gpu(), even.b, b.minimum), .resident = even.b}}};
}

Plan EvenPlanner::plan(const State& state, Time now) {
  const ReadyKernel* first = nullptr;
  for (const ReadyKernel& kernel : state.ready) {
    if (kernel.left == 0) continue;
    const bool cut = kernel.minimum > 0 && model_.fit(kernel.shape) != nullptr;
    if (first == nullptr) {
      first = &kernel;
      if (!cut) break;
    } else if (cut && kernel.shape != first->shape) {
      return together(*first, kernel);
    }
  }
  if (first == nullptr) return {};
  return {.parts = {grid_slices_alone(model_, *first)}};
}

}  // namespace bandsaw::research
