// Measures how fast the two kernels of a plan are beside each other: grid slices by when they end, persistent blocks by
// how many blocks they have claimed. It tells the model, so that a pair with a wrong forecast is not chosen again.
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

  // From now on these two run beside each other. Grid slices issued before are not counted. If they are the same two as
  // before, the measurement goes on.
  void start(const Side& a, const Side& b);
  // They no longer do. A measurement shorter than a window is dropped.
  void stop() { running_ = false; }
  // This and claimed() return true when the model has been told.
  bool grid_slice_done(KernelId kernel, Blocks blocks, Time now);
  // So many blocks of the kernel's grid had been claimed at `at`, by `resident` on each SM. `at` may be another clock's
  // than other calls' times, the same for each kernel.
  bool claimed(KernelId kernel, Blocks blocks, int resident, Time at);
  // How often the model was told.
  std::uint64_t observed() const { return observed_; }
  // Of both, as the model has it now; 0 while none are measured.
  double throughput() const;

 private:
  static constexpr int kWarmUp = 2;                       // grid slices of each before measuring
  static constexpr int kWindow = 4;                       // grid slices of each that make a measurement
  static constexpr Time kLeastWindow = 3 * kMillisecond;  // for claimed blocks, whose probes are not exact
  static constexpr Blocks kLeastRounds = 4;               // and so many claims of each persistent block

  struct Count {
    Side side;
    int slices = 0;      // grid slices that have ended
    bool seen = false;   // claimed blocks have been read once
    Blocks claimed = 0;  // as read last
    Blocks blocks = 0;   // since `from`
    Time from = 0;
    Time to = 0;

    void restart() {
      blocks = 0;
      from = to;
    }
  };
  Count* find(KernelId kernel);
  bool is_full(const Count& count) const;
  double speed(const Count& count) const;
  bool tell();

  CoRunModel& model_;
  std::array<Count, 2> counts_;
  bool running_ = false;
  std::uint64_t observed_ = 0;
};

}  // namespace bandsaw::slice
