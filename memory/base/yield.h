// Whether one may poll, and giving the core away while one does.
#pragma once

#include <sched.h>

#include <thread>
#include <utility>

#include "memory/base/clock.h"

namespace bandsaw {

// Where cores are few, whoever polls for long takes one from the program that is waited for, or that waits.
inline bool has_many_cores() {
  constexpr unsigned kMany = 8;
  static const unsigned cores = std::thread::hardware_concurrency();
  return cores >= kMany;
}

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
