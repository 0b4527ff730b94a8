#include "backend/vgpud/arbiter/planner_source.h"

namespace bandsaw {

bool PlannerSource::has(PlanningMode mode) const {
  return mode == PlanningMode::kKernelet || mode == PlanningMode::kPersistentGreedy ||
         mode == PlanningMode::kMaestroAntt || mode == PlanningMode::kMaestroStp;
}

std::unique_ptr<slice::Planner> PlannerSource::make(PlanningMode mode, slice::CoRunModel& model,
                                                    const slice::PlannerOptions& options) {
  return slice::make_planner(to_text(mode), model, options);
}

}  // namespace bandsaw
