// What kernels' malloc and free allocate from: one range of device memory of CU_LIMIT_MALLOC_HEAP_SIZE bytes, taken at
// the first malloc. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "backend/device/soft/address_space.h"
#include "backend/device/soft/memory_table.h"

namespace bandsaw::soft {

class Heap {
 public:
  // `owner` owns the device memory (Memory::release_owner).
  Heap(std::shared_ptr<Memory> memory, const void* owner) : memory_(std::move(memory)), owner_(owner) {}

  uint64_t allocate(uint64_t bytes);  // aligned to 16; 0: full
  bool release(uint64_t address);     // false: not from here
  // What it has given out, and the same in another process.
  HeapAgain state();
  CUresult make_again(const HeapAgain& state);
  // False once the heap exists: its size is fixed by then, as in CUDA.
  bool set_limit(uint64_t bytes);

 private:
  const std::shared_ptr<Memory> memory_;
  const void* const owner_;
  std::mutex mutex_;
  uint64_t limit_ = 8 << 20;
  std::optional<AddressSpace> space_;
  uint64_t base_ = 0;
  std::unordered_map<uint64_t, uint64_t> live_;  // address of the header -> bytes with it
};

}  // namespace bandsaw::soft
