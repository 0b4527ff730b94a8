// Runs all ready kernels at once, in persistent blocks. How many each has is Bashizade's greedy allocation (greedy.h).
// It is made anew at each arrival and departure, from the blocks that each kernel has left.
#pragma once

#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

class PersistentPlanner : public Planner {
 public:
  explicit PersistentPlanner(const CoRunModel& model) : model_(model) {}
  Plan plan(const State& state, Time now) override;

 private:
  struct Speeds {
    std::uint32_t version = 0;
    std::vector<double> block_ns;  // alone, by blocks on an SM
  };
  const std::vector<double>& times(ShapeId shape, const Fit& fit);

  const CoRunModel& model_;
  std::vector<Speeds> speeds_;  // by shape
};

}  // namespace bandsaw::slice
