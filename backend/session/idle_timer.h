// For how long a virtual GPU has had nothing to do. No clock: `now` is a parameter.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace bandsaw {

class IdleTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;

  // How long it is to be idle. 0: it never is.
  void set_after(Milliseconds after) { after_ = after; }
  bool wanted() const { return after_.count() > 0; }

  // What has been done so far, and whether something is under way.
  void note(Time now, uint64_t done, bool busy) {
    if (seen_ && !busy && done == done_) return;
    done_ = done;
    begin(now);
  }
  // Idle from now on, whatever was before.
  void begin(Time now) {
    seen_ = true;
    since_ = now;
  }
  bool idle(Time now) const { return wanted() && seen_ && now - since_ >= after_; }
  // Between two calls of note(): what is idle is noticed at most a quarter of the time too late.
  Milliseconds period() const { return std::clamp(after_ / 4, Milliseconds(50), Milliseconds(15000)); }

 private:
  Milliseconds after_{0};
  bool seen_ = false;
  uint64_t done_ = 0;
  Time since_{};
};

}  // namespace bandsaw
