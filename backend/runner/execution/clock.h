// The time that gates and launches under way go by. Tests have one of their own, so that nothing has to sleep.
#pragma once

#include <chrono>

namespace bandsaw::runner {

// Thread-safe.
class Clock {
 public:
  using Point = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;
  virtual Point now() const { return std::chrono::steady_clock::now(); }

  // CLOCK_MONOTONIC.
  static const Clock& system() {
    static const Clock clock;
    return clock;
  }
};

}  // namespace bandsaw::runner
