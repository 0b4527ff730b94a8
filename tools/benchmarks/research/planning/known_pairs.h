// What OPT chooses from: the measured speeds of a pair that has run, else those of a table measured ahead, else the
// model's forecast.
#pragma once

#include "vgpu-sched/slice/model.h"

namespace bandsaw::research {

using namespace slice;

class KnownPairs : public PairSource {
 public:
  // Both outlive this; `table` may be null.
  KnownPairs(CoRunModel& model, PairSource* table) : model_(model), table_(table) {}

  PairForecast pair(ShapeId a, int resident_a, ShapeId b, int resident_b) override {
    const PairForecast forecast = model_.pair(a, resident_a, b, resident_b);
    if (forecast.measured || table_ == nullptr) return forecast;
    const PairForecast known = table_->pair(a, resident_a, b, resident_b);
    return known.measured ? known : forecast;
  }

 private:
  CoRunModel& model_;
  PairSource* table_;
};

}  // namespace bandsaw::research
