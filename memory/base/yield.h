// Giving the core away while one polls.
#pragma once

#include <sched.h>

#include "memory/base/clock.h"

namespace bandsaw {

// Yields once. True: another thread has had the core, one that has work; whoever polls had better sleep. Where no other
// wants it, a yield returns within a microsecond.
inline bool core_is_wanted() {
  constexpr int64_t kTaken = 20'000;  // ns
  const int64_t before = monotonic_ns();
  sched_yield();
  return monotonic_ns() - before > kTaken;
}

}  // namespace bandsaw
