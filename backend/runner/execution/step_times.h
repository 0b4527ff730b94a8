// What the steps of a program take where nobody else has the device, and what of that is work. Kernels and their times
// say nothing of the pauses in it: while the program keeps the engine it is charged what its steps take. And they
// differ from samples of them, by gaps, overlaps and what samples miss: who gives the engine back is charged for its
// launches what these take in a step.
//
// A step lasts from the first work after the program has waited, and all earlier work has ended, until the next such
// work. Steps with the same launches (by shape, launch_times.h) are taken to be the same. Of others, what they take is
// learnt as a multiple of what their launches take by themselves.
//
// For one thread. Times in ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "backend/runner/execution/recent_ratio.h"

namespace bandsaw::runner {

class StepTimes {
 public:
  struct Takes {
    uint64_t step_ns = 0;  // alone; 0: that is not known
    double launches = 0;   // what its work takes alone, to what its launches do by themselves; 0: that is not known
  };

  // 0: how long it takes by itself is not known.
  void launch(uint64_t shape, uint64_t own_ns) {
    launches_ += shape;
    ++count_;
    own_ += own_ns;
    unknown_ |= own_ns == 0;
  }
  // The program waits for what it has launched.
  void waits() { waited_ = true; }
  bool has_waited() const { return waited_; }
  // All work has ended, and more begins. False: the program has not waited, so the step goes on. Of one that does not
  // wait for long each such pause ends a step.
  bool may_end();
  // The step under way has taken so long, and another one begins: nobody else had the device. 0: that is not known.
  void end_alone(uint64_t step_ns, uint64_t work_ns);
  // Somebody had. Launches of a step that is not known are taken for such as those of the others, if most are known.
  Takes end();

 private:
  static constexpr double kRemembered = 200e6;  // ns of launches
  static constexpr double kLaunches = 500;
  static constexpr size_t kMost = 256;           // steps with different launches; of more the first are forgotten
  static constexpr uint32_t kWithoutWaits = 16;  // pauses
  // Where its launches are taken for so much less or more than its work, it is another step: their data has changed.
  static constexpr double kLaunchesLeast = 0.7, kLaunchesMost = 1.4;

  struct Alone {
    double step_ns = 0, work_ns = 0;  // 0: not known
  };

  bool is_known() const { return own_ != 0 && !unknown_; }
  double launches_take(const Alone& alone) const;
  void begin();

  uint64_t launches_ = 0;  // of the step under way, as the next four: the sum of their shapes, which are hashes
  uint64_t own_ = 0;
  uint32_t count_ = 0;
  bool unknown_ = false, waited_ = false;
  uint32_t without_waits_ = 0;
  std::unordered_map<uint64_t, Alone> steps_;  // by `launches_`
  RecentRatio alone_{kRemembered};             // what steps take alone, against what their launches take by themselves
  // Of steps beside others: launches of known ones, against all; what known steps take alone, against their launches.
  RecentRatio known_{kLaunches}, mean_{kLaunches};
};

}  // namespace bandsaw::runner
