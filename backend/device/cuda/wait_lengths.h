// How long the waits of a program last. A program that waits again and again for the same work waits for as long each
// time: so it is known when the wait under way will end, and whoever is to see that need not wake up first, which takes
// him up to a tenth of a millisecond.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>

namespace bandsaw::cuda {

class WaitLengths {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // In which a wait will probably end, after its begin. Empty: waits differ.
  struct Window {
    Duration from{}, to{};
    bool holds(Duration waited) const { return waited >= from && waited < to; }
  };

  Window next() const {
    std::lock_guard lock(mutex_);
    const Duration around = room(last_);
    if (last_ > before_ + around || before_ > last_ + around) return {};
    return {last_ - around, last_ + around};
  }

  void ended(Duration length) {
    std::lock_guard lock(mutex_);
    before_ = last_;
    last_ = length;
  }

 private:
  static constexpr int kPart = 32;  // of a wait, by which those that are alike may differ
  static constexpr std::chrono::microseconds kLeast{200}, kMost{2000};

  static Duration room(Duration length) { return std::clamp<Duration>(length / kPart, kLeast, kMost); }

  mutable std::mutex mutex_;
  Duration last_{}, before_{};
};

}  // namespace bandsaw::cuda
