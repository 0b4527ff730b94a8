#include "backend/runner/slicing/stall_watch.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

// A grid slice takes less time than its kernel. The factor allows for others on the device.
constexpr uint64_t kTimesWhole = 20;
constexpr std::chrono::seconds kStallTimeoutLeast{1};

}  // namespace

std::chrono::nanoseconds stall_timeout(const SlicingSettings& settings, uint64_t kernel_ns) {
  if (settings.timeout_ns != 0) return std::chrono::nanoseconds(settings.timeout_ns);
  return std::max<std::chrono::nanoseconds>(kStallTimeoutLeast, std::chrono::nanoseconds(kTimesWhole * kernel_ns));
}

bool StallWatch::is_overdue(uint32_t begun, uint32_t in_flight, std::chrono::nanoseconds timeout, Clock::Point now) {
  const uint32_t ended = begun - in_flight;
  const bool moved = in_flight == 0 || ended != ended_;
  ended_ = ended;
  if (!moved && now - since_ < timeout) return false;
  since_ = now;
  return !moved;
}

}  // namespace bandsaw::runner
