// How much more compute time a virtual GPU with a latency bound may have without asking.
//
// It has no time to ask: a round trip to the arbiter takes as long as its kernels. It is let through as long as it uses
// no more than its share, or a tenth of the time if that is more, and beyond as long as nobody lacks what it is
// promised. Else it asks like everybody until the allowance is full again, and what it had too much is charged with its
// next time slice. Whether others would lack something shows only when it is let through: after a second it is, for a
// trial, and each time that the trial fails after twice as long.
#pragma once

#include <cstdint>
#include <optional>

#include "vgpu-sched/policy/types.h"

namespace bandsaw {

class Allowance {
 public:
  // Counts up to `now`. `busy_ns`: what the virtual GPU was charged in sum; `most`: what a full allowance is. Returns
  // what it had too much and has to be charged.
  sched::Time count(const sched::Share& share, uint64_t busy_ns, sched::Time most, sched::Time now);
  // It has to ask.
  bool spent() const { return spent_; }
  // Whether the others have what they are promised; `most` as in count(). Nothing: that is not known, and only the
  // allowance counts.
  void judge(std::optional<bool> others_have_theirs, sched::Time most, sched::Time now);

 private:
  sched::Time left_ = 0, at_ = 0;
  uint64_t busy_ns_ = 0;  // that it was charged up to then
  bool spent_ = true;     // it is full when it is looked at first
  // When it may be let through for a trial, how long it waits for that, and until when the last one lasts.
  sched::Time trial_at_ = 0, pause_ = sched::kSecond, trial_until_ = 0;
};

}  // namespace bandsaw
