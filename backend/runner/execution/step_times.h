// How much longer the steps of a program take while it keeps the engine than where nobody else has the device: with
// their pauses, which kernels and their times say nothing of. Alone, what steps take is learnt as a multiple of what
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
  // The program kept the engine. Returns how much longer it took than alone, less what the steps before were shorter.
  // One that took far longer was interrupted by others, and is taken to have been as much longer as they.
  uint64_t end_kept(uint64_t ns);
  // Neither.
  void end();

 private:
  static constexpr double kRemembered = 200e6;

  bool is_known() const { return own_ != 0 && !unknown_; }

  uint64_t own_ = 0;  // of the step under way, as unknown_
  bool unknown_ = false;
  // What steps take, against: what launches take by themselves; what the step takes alone.
  RecentRatio alone_{kRemembered}, kept_{kRemembered};
  double longer_ = 0;  // to be told; below 0: steps were shorter
};

}  // namespace bandsaw::runner
