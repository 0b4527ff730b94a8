// Streams that are made before the program can ask for any, and taken back. The driver gives variables of code the
// addresses at which it finds room; where a program's streams come from here, these addresses do not depend on when it
// made which.
#pragma once

#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/device/cuda/driver.h"

namespace bandsaw::cuda {

// Of one context, which is current; outlived by none of its streams' objects. Thread-safe.
class StreamStock {
 public:
  explicit StreamStock(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}

  CUresult fill() {
    for (const unsigned flags : {unsigned{CU_STREAM_DEFAULT}, unsigned{CU_STREAM_NON_BLOCKING}}) {
      for (int i = 0; i < kEach; ++i) {
        CUstream made = nullptr;
        if (const CUresult result = driver_->cuStreamCreateWithPriority(&made, flags, 0)) return result;
        std::lock_guard lock(mutex_);
        free_[flags].push_back(made);
      }
    }
    return CUDA_SUCCESS;
  }
  static bool has(unsigned flags, int priority) { return flags <= CU_STREAM_NON_BLOCKING && priority == 0; }
  // Null: there is none now.
  CUstream take(unsigned flags) {
    std::lock_guard lock(mutex_);
    if (free_[flags].empty()) return nullptr;
    return take_last(&free_[flags]);
  }
  // False: it has work, or captures.
  bool give_back(CUstream stream, unsigned flags) {
    if (driver_->cuStreamQuery(stream) != CUDA_SUCCESS) return false;
    std::lock_guard lock(mutex_);
    free_[flags].push_back(stream);
    return true;
  }

 private:
  static constexpr int kEach = 16;
  static CUstream take_last(std::vector<CUstream>* from) {
    const CUstream taken = from->back();
    from->pop_back();
    return taken;
  }
  const std::shared_ptr<const Driver> driver_;
  std::mutex mutex_;
  std::array<std::vector<CUstream>, 2> free_;  // guarded by mutex_, by flags
};

}  // namespace bandsaw::cuda
