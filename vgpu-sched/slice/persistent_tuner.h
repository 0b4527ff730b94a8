// Finds the least number of persistent blocks on each SM with which a kernel is as fast as with any number. The room
// and the cache that more of them would take are left to others. Some kernels are even faster with fewer blocks,
// because these do not push each other's data out of the cache.
//
// A search tries as many blocks as fit, then ever fewer, until launches become longer. It keeps the least number whose
// launches are hardly longer than the shortest. It always tries half of those that fit: how much slower these are says
// what the kernel waits for. Then it tries grid slices, and keeps those if they are faster: some kernels find less in
// the cache when blocks claim their work from a counter. A launch that took longer than fewer blocks can explain was
// not alone, and is tried again, as is the first one.
//
// Now and then a launch with as many blocks as fit checks what was found. If it takes another time than in the search,
// the search begins anew.
//
// One for each kernel and shape of launch. Calls from one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

class PersistentTuner {
 public:
  // `most`: blocks that fit on an SM, at least 1. `slices`: the kernel can also run in grid slices. If one of them is
  // not what it was, all that was learnt is forgotten.
  void fit(int most, bool slices);

  static constexpr int kSliced = 0;
  // Blocks on each SM to run the next launch with, or kSliced.
  int next() const { return next_; }
  // A launch with that number, alone on the GPU, took `time`. Ignored if `time` is not above 0 or the number is not
  // next().
  void observe(int resident, Time time);
  bool searches() const { return searches_; }
  int most() const { return most_; }
  // What a launch with the number that was found takes; 0: not known, or the search goes on.
  Time best() const;
  // Speed with half as many blocks as fit, relative to all that fit; 0: not known.
  double half_speed() const;
  // For people: what each number took (0: grid slices), as "8: 19.1 ms, 6: 17.3 ms, 0: 18.2 ms".
  std::string found() const;

 private:
  // Relative to the shortest launch: up to kNear a smaller number is kept, from kWorse on no smaller one is tried. Grid
  // slices are kept if they are shorter by kWorse.
  static constexpr double kNear = 1.005, kWorse = 1.01;
  static constexpr double kChanged = 1.1;
  static constexpr double kSlack = 1.2;
  static constexpr int kAgain = 64;  // launches until all that fit are tried again
  static constexpr int kTries = 4;   // of one number, at most

  void begin();
  bool is_plausible(int number, Time time) const;
  void search();
  void check(Time time);

  int most_ = 0, next_ = 1, chosen_ = 0;
  bool slices_ = false, searches_ = false;
  int tries_ = 0;              // of next_, in a search
  int launches_ = 0;           // since the search ended
  Time basis_ = 0;             // of all that fit, when the number was chosen
  std::map<int, Time> times_;  // by number
};

}  // namespace bandsaw::slice
