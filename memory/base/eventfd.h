// An eventfd as a doorbell between threads or processes. Source: eventfd(2).
#pragma once

#include <unistd.h>

#include <cstdint>

namespace bandsaw {

// False: errno tells why; EAGAIN if it was rung more often than it can count.
inline bool signal_event(int event) {
  const uint64_t one = 1;
  return ::write(event, &one, sizeof one) == sizeof one;
}

// Takes back every signal so far. False: errno tells why; EAGAIN if there was none.
inline bool drain_event(int event) {
  uint64_t count = 0;
  return ::read(event, &count, sizeof count) == sizeof count;
}

}  // namespace bandsaw
