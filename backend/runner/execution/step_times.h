// What the steps of a program take where nobody else has the device, with their pauses, which kernels and their times
// say nothing of: while it keeps the engine it is charged that. Alone, what steps take is learnt as a multiple of what
// their launches take by themselves (launch_times.h); so steps may differ.
//
// A step lasts from the first work after all earlier work has ended until the next such work.
//
// For one thread. Times in ns.
#pragma once

#include <cstdint>

#include "backend/runner/execution/recent_ratio.h"

namespace bandsaw::runner {

class StepTimes {
 public:
  // What has launches whose time is not known (0) says nothing.
  void launch(uint64_t own_ns) {
    own_ += own_ns;
    unknown_ |= own_ns == 0;
  }
  // The step under way has taken so long, and another one begins: nobody else had the device.
  void end_alone(uint64_t ns);
  // Somebody had. Returns what it takes alone; 0: that is not known. A step with launches that are not known is taken
  // for one like the others, if most are known.
  uint64_t end();

 private:
  static constexpr double kRemembered = 200e6;  // ns of launches
  static constexpr double kSteps = 50;

  bool is_known() const { return own_ != 0 && !unknown_; }
  void begin();

  uint64_t own_ = 0;  // of the step under way, as unknown_
  bool unknown_ = false;
  RecentRatio alone_{kRemembered};  // what steps take alone, against what their launches take by themselves
  // Of steps beside others: how many were known, against all; what the known ones take alone, against their number.
  RecentRatio known_{kSteps}, mean_{kSteps};
};

}  // namespace bandsaw::runner
