// Planners by name: those of vgpu-sched/slice, and those that they are compared with.
#pragma once

#include "tools/benchmarks/research/planning/compared_planners.h"

namespace bandsaw::research {

// time-sliced    everything whole, each tenant in its own context
// mps            everything whole under MPS, in order of arrival
// consolidation  pairs of whole kernels (Ravi et al., HPDC 2011)
// slices-fifo    grid slices of one kernel after the other
// opt            as kernelet, by the profits of `table`, over all pairs and ratios (Kernelet, section 5.1: OPT)
// random         random pairs and ratios, by `seed` (Kernelet, section 5.1: MC)
// even           two kernels with half of each SM (Park, section 5.5.1: SMK)
// and every name of slice::make_planner.
//
// Null: no such name, or "opt" without a table. `model`, and `table` for "opt", outlive the planner.
std::unique_ptr<Planner> make_planner(std::string_view name, CoRunModel& model, const PlannerOptions& options = {},
                                      PairSource* table = nullptr, std::uint64_t seed = 1);

}  // namespace bandsaw::research
