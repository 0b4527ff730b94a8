// Whether a program issues its launches so far ahead of the device that this has no gaps between them: by how long the
// launches between two waits take to come, and by how long they take on the device.
//
// For one thread. Times in ns.
#pragma once

#include <chrono>
#include <cstdint>

#include "backend/runner/execution/recent_ratio.h"

namespace bandsaw::runner {

class IssueTimes {
 public:
  // Takes `own_ns` by itself; 0: that is not known.
  void launch(std::chrono::steady_clock::time_point at, uint64_t own_ns) {
    if (!any_) first_ = at;
    last_ = at;
    any_ = true;
    unknown_ |= own_ns == 0;
    own_ += static_cast<double>(own_ns);
  }
  // The program waits for what it has launched. False: it has waited for all of that before.
  bool waits() {
    if (!any_) return false;
    if (!unknown_) issue_.add(static_cast<double>(std::chrono::nanoseconds(last_ - first_).count()), own_);
    any_ = unknown_ = false;
    own_ = 0;
    return true;
  }
  // They come in half the time that they take, or less. False also while nothing is known.
  bool ahead() const { return issue_.known() && issue_.ratio() <= 0.5; }

 private:
  bool any_ = false, unknown_ = false;  // since the last wait, as the next
  double own_ = 0;
  std::chrono::steady_clock::time_point first_{}, last_{};
  RecentRatio issue_{100e6};  // how long launches take to come, against what they take
};

}  // namespace bandsaw::runner
