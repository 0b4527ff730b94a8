// The planners of the lab's vgpud: production's, and "opt", "random" and "even", which those are compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/vgpud/arbiter/planner_source.h"
#include "tools/benchmarks/research/planning/pair_profits.h"

namespace bandsaw::research {

struct LabOptions {
  std::uint64_t seed = 1;           // of random
  std::vector<PairProfit> profits;  // of opt; what is not in there goes as measured, then as forecast
};

MakePlannerSource lab_planners(LabOptions options);

}  // namespace bandsaw::research
