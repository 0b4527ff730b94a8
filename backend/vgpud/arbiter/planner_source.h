// Where a co-planner takes its planner from. Production has the planners of vgpu-sched/slice; the lab's vgpud
// (tools/benchmarks/research) adds those that they are compared with.
//
// One source belongs to one co-planner and its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/control/sharing.h"
#include "vgpu-sched/slice/planner.h"

namespace bandsaw {

class PlannerSource {
 public:
  virtual ~PlannerSource() = default;
  virtual bool has(PlanningMode mode) const;
  // The planner of a mode that it has. `model` outlives the planner and this.
  virtual std::unique_ptr<slice::Planner> make(PlanningMode mode, slice::CoRunModel& model,
                                               const slice::PlannerOptions& options);
  // Whether measured speeds of pairs are to change what is planned.
  virtual bool learns(PlanningMode /*mode*/) const { return true; }
  // A kernel of this name has this shape from now on, until the shape is removed.
  virtual void add_shape(slice::ShapeId /*shape*/, const std::string& /*name*/) {}
  virtual void remove_shape(slice::ShapeId /*shape*/) {}
};

// A new source for a co-planner. Null stands for production's.
using MakePlannerSource = std::function<std::unique_ptr<PlannerSource>()>;

}  // namespace bandsaw
