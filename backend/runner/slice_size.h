// How many blocks a slice of one kernel and shape has: as few as cost at most 2 % of the kernel's speed
// (vgpu-sched/slice/tuner.h). And whether its rewritten form is as fast as the kernel itself.
#pragma once

#include <cstdint>

#include "vgpu-sched/slice/tuner.h"

namespace bandsaw::runner {

class SliceSize {
 public:
  // `wave`: blocks that are resident at once.
  SliceSize(uint64_t blocks, uint64_t wave, uint32_t sms);

  // All of them: it is to run whole, for now.
  uint64_t blocks() const { return wants_whole_ ? blocks_ : tuner_.next(); }
  // The next launch is to be whole and measured: what the last whole ones took may say nothing of today.
  bool wants_whole() const { return wants_whole_; }
  // Its rewritten form is slower by more than slices cost, again and again beside whole launches of the same time.
  bool hopeless() const { return strikes_ >= kStrikes; }

  // A whole launch took so long.
  void learn_whole(uint64_t nanoseconds);
  // A launch through slices of so many blocks did, first to last, and its gate was never closed meanwhile.
  void learn_sliced(uint64_t slice, uint64_t nanoseconds);

 private:
  static constexpr int kLooks = 16;  // of which the fastest counts
  static constexpr int kStrikes = 3;

  const uint64_t blocks_;
  slice::SliceTuner tuner_;
  uint64_t whole_ns_ = 0, sliced_ns_ = 0;  // the fastest
  uint64_t slice_ = 0;                     // what sliced_ns_ is of
  int looks_ = 0, strikes_ = 0;
  bool wants_whole_ = false, compared_ = false;  // whole_ns_ is of the time of sliced_ns_
};

}  // namespace bandsaw::runner
