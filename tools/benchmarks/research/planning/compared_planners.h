// Planners that do not ask a model: the modes that Kernelet is compared with.
//
// Sources: Kernelet, section 5.1; Park, "Enabling efficient resource utilization on multitasking throughput
// processors", section 5.5.1; Ravi et al. (HPDC 2011) for consolidation, as Kernelet's section 6 sums it up.
#pragma once

#include <random>

#include "vgpu-sched/slice/planner.h"

namespace bandsaw::research {

using namespace slice;
using slice::Sharing;  // and not that of virtual GPUs

// Everything as it comes, whole. kDriver: the driver's time slices; kSpace: MPS as it is.
class WholePlanner : public Planner {
 public:
  explicit WholePlanner(Sharing sharing) : sharing_(sharing) {}
  Plan plan(const State& state, Time now) override;

 private:
  Sharing sharing_;
};

// Two whole kernels at a time. Which: first those whose blocks fit on the GPU side by side (space sharing), then those
// whose blocks fit beside each other on an SM (time sharing), the less they take of it the better.
class ConsolidationPlanner : public Planner {
 public:
  explicit ConsolidationPlanner(const CoRunModel& model) : model_(model) {}
  Plan plan(const State& state, Time now) override;

 private:
  double affinity(const ReadyKernel& a, const ReadyKernel& b) const;

  const CoRunModel& model_;
};

// Grid slices, one kernel after the other.
class FifoGridSlicePlanner : public Planner {
 public:
  explicit FifoGridSlicePlanner(const CoRunModel& model) : model_(model) {}
  Plan plan(const State& state, Time now) override;

 private:
  const CoRunModel& model_;
};

// Any two kernels at any ratio. The same seed and calls give the same plans.
class RandomPlanner : public Planner {
 public:
  RandomPlanner(const CoRunModel& model, std::uint64_t seed) : model_(model), random_(seed) {}
  Plan plan(const State& state, Time now) override;

 private:
  const CoRunModel& model_;
  std::mt19937_64 random_;
};

// Half of each SM for each of two kernels, as long as both are there.
class EvenPlanner : public Planner {
 public:
  explicit EvenPlanner(const CoRunModel& model) : model_(model) {}
  Plan plan(const State& state, Time now) override;

 private:
  Plan together(const ReadyKernel& a, const ReadyKernel& b) const;

  const CoRunModel& model_;
};

}  // namespace bandsaw::research
