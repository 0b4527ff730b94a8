// Giving the core away while one polls.
#pragma once

#include <sched.h>

#include <utility>

#include "memory/base/clock.h"

namespace bandsaw {

// Of one poll.
class CoreWatch {
 public:
  // Yields once. True: another thread has had the core, one that has work; whoever polls had better sleep. Where no
  // other wants it, a yield returns within a microsecond. One that took long may be the virtual machine that this runs
  // in, which was held up for a moment; two in a row are not.
  bool is_wanted() {
    constexpr int64_t kTaken = 20'000;  // ns
    const int64_t before = monotonic_ns();
    sched_yield();
    const bool taken = monotonic_ns() - before > kTaken;
    return std::exchange(taken_, taken) && taken;
  }

 private:
  bool taken_ = false;  // the last time
};

}  // namespace bandsaw
