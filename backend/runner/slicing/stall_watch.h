// Notices that what is on the device of a launch does not end: its blocks may wait for blocks that are not there.
#pragma once

#include <chrono>
#include <cstdint>

#include "backend/runner/execution/clock.h"
#include "backend/runner/slicing/slicing_settings.h"

namespace bandsaw::runner {

// For how long nothing of a launch may end. `kernel_ns`: what the kernel takes; 0: it is not known.
std::chrono::nanoseconds stall_timeout(const SlicingSettings& settings, uint64_t kernel_ns);

// Of one launch. For one thread.
class StallWatch {
 public:
  explicit StallWatch(Clock::Point now) : since_(now) {}

  // `begun` counts what was issued, `in_flight` what of it has not ended. True once for each timeout in which something
  // was in flight and nothing ended.
  bool is_overdue(uint32_t begun, uint32_t in_flight, std::chrono::nanoseconds timeout, Clock::Point now);
  // When it may be at the earliest.
  Clock::Point deadline(std::chrono::nanoseconds timeout) const { return since_ + timeout; }

 private:
  Clock::Point since_;  // when something ended, or nothing was in flight
  uint32_t ended_ = 0;
};

}  // namespace bandsaw::runner
