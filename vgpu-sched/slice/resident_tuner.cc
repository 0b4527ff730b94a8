#include "vgpu-sched/slice/resident_tuner.h"

#include <algorithm>
#include <cstdio>

namespace bandsaw::slice {

void ResidentTuner::fit(int most) {
  most = std::max(most, 1);
  if (most == most_) return;
  most_ = most;
  begin();
}

void ResidentTuner::begin() {
  times_.clear();
  next_ = most_;
  searches_ = most_ > 1;
}

void ResidentTuner::observe(int resident, Time time) {
  if (time <= 0 || resident != next_) return;
  if (searches_) {
    times_[resident] = time;
    search();
  } else if (most_ > 1) {
    check(time);
  }
}

// From all that fit downwards, by a quarter at a time.
void ResidentTuner::search() {
  const auto shortest =
      std::min_element(times_.begin(), times_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto within = [least = static_cast<double>(shortest->second)](Time time, double bound) {
    return static_cast<double>(time) <= bound * least;
  };
  if (next_ > 1 && within(times_.at(next_), kWorse)) {
    next_ -= std::max(next_ / 4, 1);
    return;
  }
  // In the order of their numbers.
  const auto fewest =
      std::find_if(times_.begin(), times_.end(), [&](const auto& entry) { return within(entry.second, kNear); });
  next_ = chosen_ = fewest->first;
  basis_ = times_.at(most_);
  searches_ = false;
  launches_ = 0;
}

std::string ResidentTuner::found() const {
  std::string text;
  for (auto it = times_.rbegin(); it != times_.rend(); ++it) {
    char one[64];
    std::snprintf(one, sizeof one, "%s%d: %.3f ms", text.empty() ? "" : ", ", it->first,
                  static_cast<double>(it->second) / kMillisecond);
    text += one;
  }
  return text;
}

// Every so often all that fit are tried once.
void ResidentTuner::check(Time time) {
  if (launches_++ < kAgain) {
    if (launches_ == kAgain) next_ = most_;
    return;
  }
  const double now = static_cast<double>(time), then = static_cast<double>(basis_);
  if (now > kChanged * then || now * kChanged < then) return begin();
  next_ = chosen_;
  launches_ = 0;
}

}  // namespace bandsaw::slice
