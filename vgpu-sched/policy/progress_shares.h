// Which of several MPS virtual GPUs may begin more work, so that all make the progress that they were promised.
//
// Work of all of them is on the engine at once. How fast each one's goes on beside that of the others nobody can say
// beforehand, so it is measured, in units of the time that the work takes alone. Nobody is held back while everybody
// gets what is promised. When one lacks something, those that have used more than their promise begin nothing more
// until it has caught up, or until they are even.
//
// - What is promised is a fraction of the time for which a virtual GPU has work: its share, larger by what others
// leave,
//   within reservation and cap.
// - Progress is what a program does in the time, against what it does alone. So a pause between two steps is progress,
// as
//   it would be alone; but it is no use of the engine.
// - What all lack, the hardware does not have, and it is owed to none of them. What somebody used beyond its promise is
//   remembered only as far as others lacked it.
// - As long as it is not known what most launches of a virtual GPU take alone, all others are held back for a moment,
// so
//   that it can be measured; if that does not help, again after twice as long. They catch up afterwards.
// - Who goes first on the device, for a latency bound, and uses little is never held back.
//
// Pure: no clock, threads, system calls. Calls from one thread at a time.
// Source: proportional shares with bounded lag, as BAND+ (band_plus.h); Gdev (USENIX ATC 2012), section 5.2.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

struct ProgressOptions {
  Time memory = 30 * kMillisecond;     // a virtual GPU takes part for so long after its last work
  Time bound = 5 * kMillisecond;       // others are held back for one that lacks more
  Time forgotten = 20 * kMillisecond;  // used beyond the promise, while nobody lacked it
  Time most = kSecond;                 // that anybody is owed
  Time carry = 10 * kMillisecond;      // of that, to one that was inactive
  Time cap_burst = 30 * kMillisecond;  // what a cap may be passed by, times the cap
  // How long one has the engine alone to be learnt, and after which time again, at first and at most.
  Time learn_for = 400 * kMillisecond, learn_again = kSecond, learn_last = 16 * kSecond;
};

class ProgressShares {
 public:
  explicit ProgressShares(const ProgressOptions& options = {}) : options_(options) {}

  // What one virtual GPU did since the last call of advance().
  struct Work {
    VgpuId vgpu = 0;
    bool wants = false;     // it had work, or wanted to begin some
    Time worked = 0;        // what it did would have taken so long alone, pauses included
    Time used = 0;          // the same without pauses
    bool familiar = false;  // what most of its launches take alone is known
    bool first = false;     // its kernels go before those of the others on the device
  };

  void set(VgpuId vgpu, const Share& share);
  void remove(VgpuId vgpu) { entries_.erase(vgpu); }
  // It has work again, between two calls of advance().
  void wake(VgpuId vgpu, Time now);
  void advance(Time now, std::span<const Work> work);

  bool may_run(VgpuId vgpu) const;
  // It goes first and uses little: others' work takes beside it what that takes alone, nearly.
  bool is_light(VgpuId vgpu) const;
  // Virtual GPUs that take part now.
  int active() const;
  // Somebody is to be held to a share or a cap.
  bool is_steered() const;

 private:
  struct Entry {
    Share share;
    double fraction = 0;  // promised; 0: it does not take part
    double lack = 0;      // of progress, in nanoseconds
    double over = 0;      // used beyond the promise, in nanoseconds
    double tokens = 0;    // of its cap
    double use = 1;       // of late, of the engine's time
    bool wants = false, familiar = false, first = false, held = false;
    Time last_wanted = -kLongest;
    Time learn_at = -kLongest, learn_pause = 0;
  };

  static bool is_capped(const Entry& entry);
  void share_out();
  void settle();
  void hold_back();
  void choose_learner();

  const ProgressOptions options_;
  std::map<VgpuId, Entry> entries_;
  Time now_ = 0;
  std::optional<VgpuId> learner_;  // has the engine alone
  Time learns_since_ = 0;
};

}  // namespace bandsaw::sched
