// Who is charged for the GPU's time while several virtual GPUs use it at once. Each moment is divided among the users
// by their footprints; with equal footprints, by their number. All charges together are the time in which any of them
// ran, so that shares of time (../policy) stay in force.
//
// Pure: no clock. Calls from one thread at a time. Bounded by the users that run.
#pragma once

#include <cstdint>
#include <vector>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

class ChargeMeter {
 public:
  // Chosen by the caller; unique among the users that run.
  using UserId = std::uint64_t;

  // `footprint`: the part of the GPU that it takes, above 0 to 1: footprint() of occupancy.h, times the part of the SMs
  // that it lies on. False: it runs already.
  bool begin(UserId user, double footprint, Time now);
  // From now on it takes another part.
  void resize(UserId user, double footprint, Time now);
  // What the user is charged, in nanoseconds; 0 for one that does not run.
  Time end(UserId user, Time now);

 private:
  struct User {
    UserId id;
    double footprint;
    double charged = 0;
  };
  void pass(Time now);

  std::vector<User> users_;
  Time last_ = 0;
};

}  // namespace bandsaw::slice
