// Which time slices of a process may run beside each other on the GPU: those whose work goes to different streams.
//
// As long as work goes to one stream, it is of one era; with the first work for another stream the next era begins. The
// time of a sample (launch_times.h) is its own only if nothing of an earlier era was in flight when it began, and no
// new era has begun when it ends.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

namespace bandsaw::runner {

class StreamEras {
 public:
  // Work for another stream comes.
  void next() {
    std::lock_guard lock(mutex_);
    ++era_;
    past_ += std::exchange(present_, 0);
  }
  // A time slice begins. Returns its era.
  uint64_t begin() {
    std::lock_guard lock(mutex_);
    ++present_;
    return era_;
  }
  // It has ended. True: its era has not.
  bool end(uint64_t era) {
    std::lock_guard lock(mutex_);
    --(era == era_ ? present_ : past_);
    return era == era_;
  }
  // Time slices of earlier eras are in flight.
  bool any_of_the_past() const {
    std::lock_guard lock(mutex_);
    return past_ != 0;
  }

 private:
  mutable std::mutex mutex_;
  uint64_t era_ = 0;
  uint32_t present_ = 0, past_ = 0;  // time slices in flight
};

}  // namespace bandsaw::runner
