// How few blocks of a kernel on each SM are as fast as any number: what more of them would take, caches and room, is
// left to others. Some kernels are faster with fewer, when the blocks that are resident together then find in the cache
// what else they push out.
//
// From measured launches: all that fit, then step by step fewer, until launches become longer; the fewest whose
// launches are hardly longer than the shortest are kept. Half of all that fit are measured in any case: how much slower
// they are says what a kernel waits for. Then a launch in grid slices is tried: where these are faster, as some kernels
// find less in the cache when their blocks claim their work from the counter, it is they that are kept. Now and then
// all that fit are tried again, and if that is not what it was by then, the search begins anew. A launch that took
// longer than fewer blocks explain was not alone, and is tried again, as is the first.
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
  // Blocks that fit on an SM, at least 1, and whether grid slices can be had. Other than before: what was learnt is
  // forgotten.
  void fit(int most, bool slices);

  static constexpr int kSliced = 0;
  // Blocks on each SM to run the next launch with, or kSliced.
  int next() const { return next_; }
  // `time`: a launch that was so, alone on the GPU. Of times not above 0, and of other numbers than next(), nothing is
  // learnt.
  void observe(int resident, Time time);
  bool searches() const { return searches_; }
  int most() const { return most_; }
  // What a launch takes that is as next() has it; 0: not known, or it is being searched for.
  Time best() const;
  // Of half as many as fit, relative to these; 0: not known.
  double half_speed() const;
  // For people: what each number took, and grid slices, as "8: 19.1 ms, 6: 17.3 ms, 0: 18.2 ms".
  std::string found() const;

 private:
  // Times the shortest: kept if fewer; no fewer are tried. Grid slices are kept if they are shorter by as much.
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
