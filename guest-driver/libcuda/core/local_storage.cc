#include "guest-driver/libcuda/core/local_storage.h"

#include <vector>

namespace bandsaw::libcuda {

CUresult LocalStorage::put(void* key, void* value, Destructor destructor) {
  if (!key) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  Entry* place = nullptr;
  const size_t used = used_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < used; i++) {
    void* const there = entries_[i].key.load(std::memory_order_relaxed);
    // As a real driver does: the first of two threads that make the same state wins.
    if (there == key) return CUDA_ERROR_INVALID_HANDLE;
    if (!there && !place) place = &entries_[i];
  }
  if (!place) {
    if (used == kEntries) return CUDA_ERROR_OUT_OF_MEMORY;
    place = &entries_[used];
    used_.store(used + 1, std::memory_order_release);
  }
  place->destructor = destructor;
  place->value.store(value, std::memory_order_relaxed);
  place->key.store(key, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult LocalStorage::remove(void* key) {
  std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (key && entry.key.load(std::memory_order_relaxed) == key) {
      entry.key.store(nullptr, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult LocalStorage::get(void* key, void** value) const {
  const size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; i++) {
    if (entries_[i].key.load(std::memory_order_acquire) == key) {
      *value = entries_[i].value.load(std::memory_order_relaxed);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

void LocalStorage::clear(CUcontext context) {
  struct Last {
    void *key, *value;
    Destructor destructor;
  };
  std::vector<Last> last;
  {
    std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      void* const key = entry.key.exchange(nullptr);
      if (key && entry.destructor) last.push_back({key, entry.value.load(), entry.destructor});
    }
  }
  for (const Last& entry : last) entry.destructor(context, entry.key, entry.value);
}

}  // namespace bandsaw::libcuda
