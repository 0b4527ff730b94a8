// How many blocks a grid slice of one kernel and shape has: as few as cost at most 2 % of the kernel's speed
// (vgpu-sched/slice/tuner.h).
#pragma once

#include <cstdint>

#include "vgpu-sched/slice/tuner.h"

namespace bandsaw::runner {

class GridSliceSize {
 public:
  // `wave`: blocks that are resident at once.
  GridSliceSize(uint64_t blocks, uint64_t wave, uint32_t sms);

  // Blocks of the next launch's grid slices; all blocks: the launch is to run whole.
  uint64_t blocks() const { return tuner_.next(); }
  // The next launch is to run whole and to be measured, since the last whole ones may be out of date.
  bool wants_whole() const { return tuner_.compares(); }
  // Its rewritten variant is slower by more than grid slices cost, again and again beside whole launches of the same
  // time.
  bool hopeless() const { return tuner_.hopeless(); }

  // So many grid slices of a launch are on the device at a time; not `apart`: one begins when the one before has ended.
  void run_beside(uint32_t slices, bool apart);
  // A whole launch took so long.
  void learn_whole(uint64_t nanoseconds) { tuner_.observe(blocks_, static_cast<slice::Time>(nanoseconds)); }
  // A launch through grid slices of so many blocks did, first to last, and its gate was never closed meanwhile.
  void learn_sliced(uint64_t slice, uint64_t nanoseconds) {
    if (slice < blocks_) tuner_.observe(slice, static_cast<slice::Time>(nanoseconds));
  }

 private:
  const uint64_t blocks_;
  slice::GridSliceTuner tuner_;
};

}  // namespace bandsaw::runner
