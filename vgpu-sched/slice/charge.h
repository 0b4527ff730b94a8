// Who is charged for the GPU's time while several use it at once: each slice its part of every moment, in the relation
// of what it takes of the SMs. What all are charged together is the time in which any ran, so that the shares of
// time (../policy) stay in force: the charge is a slice's measured time there.
//
// Pure: no clock. Calls from one thread at a time. Bounded by the slices that run.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

class ChargeMeter {
 public:
  // Chosen by the caller; unique among the slices that run.
  using SliceId = std::uint64_t;

  // `footprint`: the part of the GPU that it takes, above 0 to 1: footprint() of occupancy.h, times the part of the SMs
  // that it lies on. False: it runs already.
  bool begin(SliceId slice, double footprint, Time now);
  // What the slice is charged, in nanoseconds; 0 for one that does not run.
  Time end(SliceId slice, Time now);

 private:
  struct Slice {
    SliceId id;
    double footprint;
    double charged = 0;
  };
  void pass(Time now);

  std::vector<Slice> slices_;
  Time last_ = 0;
};

}  // namespace bandsaw::slice
