// Speeds of pairs measured ahead, for every ratio that was run: what OPT chooses from (Kernelet, section 5.1).
#pragma once

#include <map>
#include <tuple>

#include "vgpu-sched/slice/model.h"

namespace bandsaw::research {

using namespace slice;

class ProfitTable : public PairSource {
 public:
  // Speeds relative to each shape alone at full occupancy.
  void set(ShapeId a, int resident_a, ShapeId b, int resident_b, double speed_a, double speed_b);
  // Nothing of this shape is known any more.
  void forget(ShapeId shape);
  // Zeros, which no planner chooses, for what was not measured.
  PairForecast pair(ShapeId a, int resident_a, ShapeId b, int resident_b) override;

 private:
  std::map<std::tuple<ShapeId, int, ShapeId, int>, PairForecast> known_;  // the smaller shape first
};

}  // namespace bandsaw::research
