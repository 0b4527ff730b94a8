// Time that passes when the test says so.
#pragma once

#include <atomic>

#include "backend/runner/execution/clock.h"

namespace bandsaw::runner {

// Thread-safe.
class TestClock final : public Clock {
 public:
  Point now() const override { return Point(std::chrono::nanoseconds(now_ns_)); }
  void pass(std::chrono::nanoseconds time) { now_ns_ += time.count(); }

 private:
  std::atomic<int64_t> now_ns_{3'600'000'000'000};  // an hour: what was long ago has a time too
};

}  // namespace bandsaw::runner
