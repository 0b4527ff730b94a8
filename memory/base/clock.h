// The clock that processes of this host share: CLOCK_MONOTONIC. Source: clock_gettime(2).
#pragma once

#include <cstdint>
#include <ctime>

namespace bandsaw {

// Nanoseconds; thread-safe.
inline int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace bandsaw
