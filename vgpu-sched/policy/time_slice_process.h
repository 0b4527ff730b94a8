// What one process had of the engine, as far as it can be told: the hardware served it in turns with others, and what
// was measured of its work holds their time slices too.
//
// Between two rests (all its work has ended) a process is charged while it has work; at the rest it is found out what
// it had. Times in ns.
//
// Pure, as time_slice_weights.h, whose part it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

// Work of this length or more fills time slices well enough.
inline constexpr Time kShortBurst = 4 * kMillisecond;

struct TimeSliceProcess {
  Time measured = 0, own = 0, paused = 0, issued = 0, done = 0;  // what Load's were
  std::uint32_t rests = 0, cut_samples = 0, learnt = 0;
  static constexpr std::uint32_t kRestsRemembered = 8;
  std::uint32_t rests_noted = 0;            // how often, up to kRestsRemembered
  double pauses_told = 0, issues_told = 0;  // since the last rest
  double mean_pause = 0;                    // between a rest and the next work
  double mean_issue = 0;                    // from the first work after a rest to the last one before the next
  double pause_left = 0;                    // of the pause that is under way, what counts as progress
  Time burst = kLongest;  // what it has between two rests, about; kLongest: it has not rested for long
  bool outgrown = false;  // it had more than that since the last one, so that nobody knows when it will rest
  double ahead = 0;       // what others had while it paused, of what they have between its time slices
  double yield = 1;       // what it has of a time slice for each ns that it is taken to have
  Time last_busy = -kLongest;
  bool busy = false, seen = false;
  int priority = 0;              // among those of its virtual GPU
  bool later = false;            // one of a higher priority has work: that goes first
  bool has_later = false;        // and its time slices are as long as those of such
  Time unlearnt_at = -kLongest;  // when its runner last tried in vain to learn how long its work takes
  // Since its last rest.
  Time unrested = 0;              // measured
  Time unrested_own = 0;          // the part of that which is Load::own
  double charged = 0, wall = 0;   // what it was charged, and for how long it had work
  double taken = 0;               // `charged` with a yield of 1
  double rounds = 0, filled = 0;  // of the hardware, in that time; its time slices in them
  double least = 0;               // of `wall`: its part if all others use their whole time slices
  double switched = 0;            // what switches to it and from it are taken to have cost
  // While it keeps the engine, since it was settled last: what its steps take alone, what it was taken to have, and
  // what it was charged.
  double kept_done = 0, kept_taken = 0, kept_charged = 0;

  // Of a step, the time without work on the engine if nobody else uses it. It is known after some steps.
  bool knows_idle() const { return rests_noted == kRestsRemembered; }
  double mean_idle() const { return mean_pause + std::max(0.0, mean_issue - static_cast<double>(burst)); }
  bool never_rests() const { return burst >= kLongest - 1; }
  // Of its time slices, what its work takes: more than alone, by what interruptions and a lower clock cost it.
  static constexpr double kTakenLeast = 0.85;  // a lower yield has other causes
  double takes() const { return static_cast<double>(burst) / std::clamp(yield, kTakenLeast, 1.0); }
  // What it had since it rested last. `slice`: its time slice.
  double served(Time slice) const;
  // What it had at least since then, if it has had work all the time.
  double certain(Time slice) const;
  // It had this much since it rested last.
  void had_at_least(double had);
  // What it uses of a time slice, on average: its work fills some, and the last one as far as it goes.
  double visit(Time slice) const;
  // It has rested so often, paused and issued for so long in sum.
  void note_rests(std::uint32_t times, Time pauses, Time issues);
  // Since it rested last, nobody else had work.
  bool had_all() const;
  // It had work of this length, and nobody interrupted it, or all of it is its own. `alone`: nobody else had work.
  void note_whole(Time work, bool alone);
  // Work that was counted beside others: as long as it was alone, if it differs little from that. Launches one by one
  // are a little shorter or longer beside others, while a step makes the same progress.
  double as_alone(double work) const;
  // It keeps the engine, and what it did since the last time takes so long alone. Returns what it had less than it was
  // charged; below 0: more.
  double note_done(Time since);
  // What it has of its time slices from now on is another part.
  void forget_yield();
  // It rests, and has so much at a time.
  void restart(Time as_long);

 private:
  struct Whole {
    Time work = 0;
    std::uint32_t times = 0;  // 0: there is none in this place
    bool alone = false;
  };

  const Whole* find_whole(double measured_then, double slice, double others) const;

  std::array<Whole, 8> wholes_{};  // `burst` where nobody interrupted it, of several lengths
};

}  // namespace bandsaw::sched
