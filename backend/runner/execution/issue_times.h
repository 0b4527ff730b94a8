// Whether a program issues its launches so far ahead of the device that this has no gaps between them: by how long the
// launches between two waits take to come, and by how long they take on the device.
//
// For one thread. Times in ns.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

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
  // The program waits for what it has launched.
  void waits() {
    if (!any_) return;
    if (!unknown_) add(static_cast<double>(std::chrono::nanoseconds(last_ - first_).count()));
    any_ = unknown_ = false;
    own_ = 0;
  }
  // They come in half the time that they take, or less. False also while nothing is known.
  bool ahead() const { return all_ > 0 && issued_ <= all_ / 2; }

 private:
  static constexpr double kRemembered = 100e6;  // of what launches take

  void add(double issued) {
    const double kept = std::min(1.0, kRemembered / (all_ + own_));
    issued_ = (issued_ + issued) * kept;
    all_ = (all_ + own_) * kept;
  }

  bool any_ = false, unknown_ = false;  // since the last wait, as the next
  double own_ = 0;
  std::chrono::steady_clock::time_point first_{}, last_{};
  double issued_ = 0, all_ = 0;
};

}  // namespace bandsaw::runner
