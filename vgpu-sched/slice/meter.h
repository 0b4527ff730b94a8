// How fast the two kernels of a plan really are beside each other, from the ends of their slices: the model is told, so
// that what it forecast wrongly is not chosen again.
//
// Calls from one thread at a time; of fixed size.
#pragma once

#include <array>

#include "vgpu-sched/slice/model.h"

namespace bandsaw::slice {

class SpeedMeter {
 public:
  struct Side {
    KernelId kernel = 0;
    ShapeId shape = kNoShape;
    int resident = 0;

    bool operator==(const Side&) const = default;
  };

  // `model` outlives this.
  explicit SpeedMeter(CoRunModel& model) : model_(model) {}

  // From now on these two run beside each other. What was on its way is not counted. The same two as before go on.
  void start(const Side& a, const Side& b);
  // They no longer do; what was measured less than a window long is dropped.
  void stop() { running_ = false; }
  void slice_done(KernelId kernel, Blocks blocks, Time now);

 private:
  static constexpr int kWarmUp = 2;  // slices of each before measuring
  static constexpr int kWindow = 4;  // slices of each that make a measurement

  struct Count {
    Side side;
    int slices = 0;
    Blocks blocks = 0;  // since `from`
    Time from = 0;
    Time to = 0;
  };
  double speed(const Count& count) const;

  CoRunModel& model_;
  std::array<Count, 2> counts_;
  bool running_ = false;
};

}  // namespace bandsaw::slice
