// How much compute time a virtual GPU with a latency bound may have without asking.
//
// It has no time to ask: a round trip to the arbiter takes as long as its kernels. It is let through as long as it uses
// no more than its share, or a tenth of the time if that is more. Else it asks like everybody until the allowance is
// full again, and what it had too much is charged with its next time slice.
#pragma once

#include <cstdint>

#include "vgpu-sched/policy/types.h"

namespace bandsaw {

class Allowance {
 public:
  // Counts up to `now`. `busy_ns`: what the virtual GPU was charged in sum; `most`: what a full allowance is. Returns
  // what it had too much and has to be charged.
  sched::Time count(const sched::Share& share, uint64_t busy_ns, sched::Time most, sched::Time now);
  // It has to ask.
  bool spent() const { return spent_; }

 private:
  sched::Time left_ = 0, at_ = 0;
  uint64_t busy_ns_ = 0;  // that it was charged up to then
  bool spent_ = true;     // it is full when it is looked at first
};

}  // namespace bandsaw
