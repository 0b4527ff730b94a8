// Timestamps of records: what the program's own clock would have said, or CLOCK_REALTIME if it gave none.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <mutex>

namespace bandsaw::cupti {

// Thread-safe. What is measured is CLOCK_MONOTONIC; the other clock is read now and then, and runs evenly in between.
class Clock {
 public:
  static Clock& get();

  void use(CUpti_TimestampCallbackFunc read);  // nullptr: CLOCK_REALTIME
  uint64_t now() const;
  uint64_t convert(uint64_t monotonic_ns);

 private:
  struct Pair {
    uint64_t monotonic_ns = 0, other = 0;
  };
  Pair sample() const;

  mutable std::mutex mutex_;
  CUpti_TimestampCallbackFunc read_ = nullptr;
  Pair first_, last_;
};

}  // namespace bandsaw::cupti
