#include "vgpu-sched/slice/maestro_planner.h"
#include "vgpu-sched/slice/pair_planner.h"
#include "vgpu-sched/slice/persistent_planner.h"
#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

std::unique_ptr<Planner> make_planner(std::string_view name, CoRunModel& model, const PlannerOptions& options) {
  if (name == "persistent-greedy") return std::make_unique<PersistentPlanner>(model);
  if (name == "maestro-antt") return std::make_unique<MaestroPlanner>(model, options, PartitionGoal::kTurnaround);
  if (name == "maestro-stp") return std::make_unique<MaestroPlanner>(model, options, PartitionGoal::kThroughput);
  if (name == "kernelet") {
    const PairRules rules{.prune = true, .ratios = options.ratios, .solves = options.solves};
    return std::make_unique<PairPlanner>(model, model, options, rules);
  }
  return nullptr;
}

}  // namespace bandsaw::slice
