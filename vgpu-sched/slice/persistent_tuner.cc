#include "vgpu-sched/slice/persistent_tuner.h"

#include <algorithm>
#include <cstdio>

namespace bandsaw::slice {

void PersistentTuner::fit(int most, bool slices) {
  most = std::max(most, 1);
  if (most == most_ && slices == slices_) return;
  most_ = most;
  slices_ = slices;
  begin();
}

void PersistentTuner::begin() {
  times_.clear();
  next_ = most_;
  tries_ = 0;
  searches_ = most_ > 1 || slices_;
}

void PersistentTuner::observe(int resident, Time time) {
  if (time <= 0 || resident != next_) return;
  if (searches_) {
    const bool again = times_.empty() || (!is_plausible(resident, time) && tries_ + 1 < kTries);
    const Time least = times_.contains(resident) ? times_[resident] : time;
    times_[resident] = std::min(least, time);
    ++tries_;
    if (again) return;
    tries_ = 0;
    search();
  } else {
    check(time);
  }
}

// With fewer blocks it may take as much longer; grid slices of as many as fit about as long.
bool PersistentTuner::is_plausible(int number, Time time) const {
  const auto& [all, took] = *times_.rbegin();
  const double longer = number == kSliced ? 1 : static_cast<double>(all) / number;
  return static_cast<double>(time) <= kSlack * longer * static_cast<double>(took);
}

// From all that fit downwards, by a quarter at a time.
void PersistentTuner::search() {
  const auto by_time = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto first = times_.upper_bound(kSliced);  // the others are in the order of their numbers
  const double shortest = static_cast<double>(std::min_element(first, times_.end(), by_time)->second);
  const auto time = [this](int number) { return static_cast<double>(times_.at(number)); };
  if (next_ > 1 && time(next_) <= kWorse * shortest) {
    next_ -= std::max(next_ / 4, 1);
    return;
  }
  if (most_ > 1 && !times_.contains(most_ / 2)) {
    next_ = most_ / 2;
    return;
  }
  if (slices_ && !times_.contains(kSliced)) {
    next_ = kSliced;
    return;
  }
  next_ =
      std::find_if(first, times_.end(), [&](const auto& one) { return time(one.first) <= kNear * shortest; })->first;
  if (slices_ && kWorse * time(kSliced) < time(next_)) next_ = kSliced;
  chosen_ = next_;
  basis_ = times_.at(most_);
  searches_ = false;
  launches_ = 0;
}

Time PersistentTuner::best() const {
  const auto found = times_.find(chosen_);
  return searches_ || found == times_.end() ? 0 : found->second;
}

double PersistentTuner::half_speed() const {
  const auto all = times_.find(most_), half = times_.find(most_ / 2);
  if (searches_ || most_ < 2 || all == times_.end() || half == times_.end()) return 0;
  return static_cast<double>(all->second) / static_cast<double>(half->second);
}

std::string PersistentTuner::found() const {
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
void PersistentTuner::check(Time time) {
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
