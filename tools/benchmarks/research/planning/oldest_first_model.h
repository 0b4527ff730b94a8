// Forecasts of pairs on a GPU whose warp schedulers issue from the oldest warps and whose memory serves a part of its
// queue in order: both seen on an H200 (in_order: 0.3, fitted to 196 measured pairs). A forecast costs twice as much as
// with warps that take turns, and plans that count on it have not been measured.
#pragma once

#include "vgpu-sched/slice/model.h"

namespace bandsaw::research {

using namespace slice;

class OldestFirstModel : public CoRunModel {
 public:
  // `in_order`: of the memory's queue, the part that accesses wait for in order, 0 to 1.
  OldestFirstModel(const GpuModel& gpu, double in_order) : CoRunModel(gpu), in_order_(in_order) {}

 protected:
  PairForecast solve_pair(const Fit& first, int resident_a, const Fit& second, int resident_b) override;

 private:
  double in_order_;
};

}  // namespace bandsaw::research
