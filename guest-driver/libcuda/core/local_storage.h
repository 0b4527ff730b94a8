// Context-local storage: values that other libraries (each copy of the CUDA runtime) keep about a context under a key
// of their own. Read on nearly every runtime call, so reading takes no lock.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <mutex>

namespace bandsaw::libcuda {

class LocalStorage {
 public:
  using Destructor = void (*)(CUcontext context, void* key, void* value);

  // CUDA_ERROR_OUT_OF_MEMORY when kEntries keys are in use.
  CUresult put(void* key, void* value, Destructor destructor);
  CUresult remove(void* key);
  // CUDA_ERROR_INVALID_HANDLE when there is nothing under this key.
  CUresult get(void* key, void** value) const;
  // Empties the storage and calls the destructors, without a lock held.
  void clear(CUcontext context);

 private:
  static constexpr size_t kEntries = 128;
  struct Entry {
    std::atomic<void*> key{nullptr};
    std::atomic<void*> value{nullptr};
    Destructor destructor = nullptr;
  };

  std::mutex mutex_;  // of writers
  std::array<Entry, kEntries> entries_;
  std::atomic<size_t> used_{0};  // entries from here on were never used
};

}  // namespace bandsaw::libcuda
