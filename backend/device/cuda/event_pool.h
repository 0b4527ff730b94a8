// Events of one kind, kept for reuse by the context whose they are: making one costs more than recording it.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/spin_lock.h"

namespace bandsaw::cuda {

// Thread-safe.
class EventPool {
 public:
  // `flags` as cuEventCreate takes them.
  EventPool(DriverRef driver, unsigned flags) : driver_(std::move(driver)), flags_(flags) {}

  // The context must be current.
  CUresult take(const CudaContextRef& context, CUevent* event) {
    {
      std::lock_guard lock(lock_);
      std::vector<CUevent>& free = free_[context->owner().id];
      if (!free.empty()) {
        *event = free.back();
        free.pop_back();
        return CUDA_SUCCESS;
      }
    }
    return driver_->cuEventCreate(event, flags_);
  }
  void give(const CudaContextRef& context, CUevent event) {
    std::lock_guard lock(lock_);
    const CudaContext& owner = context->owner();
    if (owner.alive) {
      free_[owner.id].push_back(event);
    } else {
      free_.erase(owner.id);  // went with the context
    }
  }

 private:
  const DriverRef driver_;
  const unsigned flags_;
  SpinLock lock_;
  std::map<uint64_t, std::vector<CUevent>> free_;  // guarded by lock_: by the context's id
};

}  // namespace bandsaw::cuda
