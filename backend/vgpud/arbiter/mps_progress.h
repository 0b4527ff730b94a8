// What the work of an MPS virtual GPU would have taken alone.
//
// Runners sum up what the time slices of known launches took beside others (known) and what these launches take by
// themselves (own), and what time slices took that hold unknown launches (unknown). A program that does not keep the
// device busy takes longer alone than the sum of its launches; how much longer is learnt while no other virtual GPU has
// anything on the device. Work that has not ended is counted as far as it is likely to have come.
//
// A runner that has been taken over may write anything there: it makes its own virtual GPU look slower or faster than
// it is. While a virtual GPU is alone, what it says does not count.
#pragma once

#include <cstdint>

#include "vgpu-sched/policy/types.h"

namespace bandsaw {

// Sums over all programs of the virtual GPU, as their gates say them.
struct MpsTimes {
  uint64_t known = 0, own = 0, unknown = 0;
  uint64_t paused = 0;    // from each rest to the next time slice
  uint64_t ended = 0;     // time slices
  uint32_t running = 0;   // the same, on the device now
  uint32_t programs = 0;  // that have work, or want some
  bool waiting = false;   // a program wants to begin one, and has not been let in
};

class MpsProgress {
 public:
  struct Step {
    bool wants = false;      // it has work, or wants to begin some
    sched::Time worked = 0;  // what its work since the last time would have taken alone, pauses included
    sched::Time used = 0;    // the same without pauses
  };

  // `alone`: no other virtual GPU had anything on the device since the last time. `sharers`: how many have.
  Step read(const MpsTimes& times, bool alone, int sharers, sched::Time now);
  // Nobody looked for a while, because nobody had work.
  void skip_to(sched::Time now) { at_ = now; }
  // What most of its launches take by themselves is known.
  bool is_familiar() const { return familiar_; }

 private:
  double work_of(const MpsTimes& times, bool alone, int sharers);
  double in_flight(const MpsTimes& times, bool ended, double passed) const;
  sched::Time pause_of(const MpsTimes& times, sched::Time passed);
  double rate(bool alone, int sharers) const;
  void learn_alone(double work, bool ended, sched::Time wall);
  void judge(double known, double unknown);

  MpsTimes last_;
  sched::Time at_ = 0;
  double rate_ = 0;                  // of progress beside others, to that alone; 0: not known
  double each_ = 0;                  // what a time slice's work takes alone
  double most_ = 0;                  // what ended at a time of late would have taken alone
  double in_flight_ = 0;             // what was counted of work that has not ended
  double longer_ = 1;                // what work takes alone, to what its launches take by themselves
  double wall_ = 0, own_ = 0;        // of that, as measured
  bool counts_alone_ = false;        // a time slice has ended since it is alone
  sched::Time alone_since_end_ = 0;  // time since the last of these
  double known_ = 0, unknown_ = 0;   // times of late
  sched::Time paused_before_ = 0;    // seen as a pause before its end was told
  bool familiar_ = false;
};

}  // namespace bandsaw
