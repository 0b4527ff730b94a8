#include "tools/benchmarks/research/planning/make_planner.h"

#include "vgpu-sched/slice/pair_planner.h"

namespace bandsaw::research {

std::unique_ptr<Planner> make_planner(std::string_view name, CoRunModel& model, const PlannerOptions& options,
                                      PairSource* table, std::uint64_t seed) {
  if (name == "time-sliced") return std::make_unique<WholePlanner>(Sharing::kDriver);
  if (name == "mps") return std::make_unique<WholePlanner>(Sharing::kSpace);
  if (name == "consolidation") return std::make_unique<ConsolidationPlanner>(model);
  if (name == "slices-fifo") return std::make_unique<FifoGridSlicePlanner>(model);
  if (name == "random") return std::make_unique<RandomPlanner>(model, seed);
  if (name == "even") return std::make_unique<EvenPlanner>(model);
  if (name == "opt" && table != nullptr) {
    // A table solves none; forecasts in place of what is not measured yet are bounded as Kernelet's are.
    const PairRules rules{.prune = false, .ratios = 0, .solves = options.solves};
    return std::make_unique<PairPlanner>(model, *table, options, rules);
  }
  return slice::make_planner(name, model, options);
}

}  // namespace bandsaw::research
