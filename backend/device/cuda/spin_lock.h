// A lock for sections of a few instructions between threads that poll anyway: a mutex would put one of them to sleep,
// which costs more than the whole call.
#pragma once

#include <immintrin.h>

#include <atomic>

namespace bandsaw::cuda {

class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      while (taken_.load(std::memory_order_relaxed)) _mm_pause();
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace bandsaw::cuda
