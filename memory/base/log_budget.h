// Lines that a guest can cause go to the log at a bounded rate: a hostile one shall not fill the disk.
#pragma once

#include <algorithm>
#include <chrono>

namespace bandsaw {

class LogBudget {
 public:
  // Whether one more line may be written now: 100 at once, 5 a second in the long run.
  bool allow() {
    const auto now = std::chrono::steady_clock::now();
    lines_ = std::min(kBurst, lines_ + kPerSecond * std::chrono::duration<double>(now - last_).count());
    last_ = now;
    if (lines_ < 1) return false;
    lines_ -= 1;
    return true;
  }

 private:
  static constexpr double kBurst = 100, kPerSecond = 5;
  double lines_ = kBurst;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace bandsaw
