#include "vgpu-sched/slice/pair_planner.h"
#include "vgpu-sched/slice/persistent_planner.h"
#include "vgpu-sched/slice/planner.h"
#include "vgpu-sched/slice/whole_planners.h"

namespace bandsaw::slice {

std::unique_ptr<Planner> make_planner(std::string_view name, CoRunModel& model, const PlannerOptions& options,
                                      PairSource* table) {
  if (name == "time-sliced") return std::make_unique<WholePlanner>(Sharing::kDriver);
  if (name == "mps") return std::make_unique<WholePlanner>(Sharing::kSpace);
  if (name == "consolidation") return std::make_unique<ConsolidationPlanner>(model);
  if (name == "slices-fifo") return std::make_unique<FifoGridSlicePlanner>(model);
  if (name == "persistent-greedy") return std::make_unique<PersistentPlanner>(model);
  if (name == "random") return std::make_unique<RandomPlanner>(model, options.seed);
  if (name == "kernelet") {
    const PairRules rules{.prune = true, .ratios = options.ratios, .solves = options.solves};
    return std::make_unique<PairPlanner>(model, model, options, rules);
  }
  if (name == "opt" && table != nullptr) {
    // A table solves none; forecasts in place of what is not measured yet are bounded as Kernelet's are.
    const PairRules rules{.prune = false, .ratios = 0, .solves = options.solves};
    return std::make_unique<PairPlanner>(model, *table, options, rules);
  }
  return nullptr;
}

}  // namespace bandsaw::slice
