// How fast the programs of an MPS virtual GPU go beside those of others, as a part of what they would do alone.
//
// Their runners know what many launches take by themselves (runner/execution/launch_times.h), and measure what they
// take now. The ratio, times the part of the time for which they have work on the GPU, is their progress.
#pragma once

#include <cstdint>
#include <optional>

#include "vgpu-sched/policy/types.h"

namespace bandsaw {

// Counters of gates (backend/control/gate_link.h), summed over the runners of a virtual GPU, in nanoseconds. A runner
// may write anything there: it makes its own virtual GPU look slower or faster than it is.
struct MpsTimes {
  uint64_t busy = 0, known = 0, own = 0;
};

class MpsProgress {
 public:
  static constexpr sched::Time kBetween = 100 * sched::kMillisecond;  // two samples are so far apart

  bool is_due(sched::Time now) const { return now - at_ >= kBetween; }
  // Does nothing before it is due.
  void read(const MpsTimes& times, sched::Time now);
  // They had work in the last sample.
  bool is_active() const { return active_; }
  // Nothing: too little of their work is known.
  std::optional<double> value() const { return value_; }

 private:
  MpsTimes last_;
  sched::Time at_ = -sched::kLongest;
  bool active_ = false;
  std::optional<double> value_;
};

}  // namespace bandsaw
