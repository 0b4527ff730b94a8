// Memory that the runner sees too. Blocks lie in the lower half of the process's address window, at the same address
// on both sides, so kernels and copies use them in place.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::libcuda {

class Transport;

struct SharedBlock {
  void* address = nullptr;
  uint64_t bytes = 0;   // whole pages
  uint32_t region = 0;  // its id in control requests
  uint32_t flags = 0;   // VGPU_REGION_*
};

// Thread-safe. Every call may take a round trip to the host.
class SharedMemory {
 public:
  explicit SharedMemory(Transport* transport) : transport_(transport) {}

  // Zeroed, page-aligned memory; `flags`: VGPU_REGION_DEVICE_VISIBLE when kernels may use it.
  // CUDA_ERROR_OUT_OF_MEMORY, or kLostHost.
  CUresult allocate(uint64_t bytes, uint32_t flags, SharedBlock* block);
  // Returns when the host uses it no more. `address` is a block's first byte; else CUDA_ERROR_INVALID_VALUE.
  CUresult release(void* address);

  // Makes the program's own memory known to the host: the whole pages around [address, address + bytes).
  // CUDA_ERROR_NOT_SUPPORTED where the transport cannot (direct mode), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
  // when a page of it is known already.
  CUresult pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block);
  CUresult unpin(void* address);
  // Where pages cannot be pinned: the program has mapped the whole of `block` at `address` (a page) as well, and the
  // host shall know it there too, until unpin(address). CUDA_ERROR_NOT_SUPPORTED where pages can be pinned.
  CUresult share_at(const SharedBlock& block, void* address, uint32_t flags);

  // The block or pinned range that holds all of [address, address + bytes); false if there is none.
  bool find(const void* address, uint64_t bytes, SharedBlock* block);

 private:
  Transport* const transport_;
  std::mutex mutex_;
  std::map<uint64_t, SharedBlock> blocks_;  // by first address; pinned ranges as well
  std::map<uint64_t, SharedBlock> pinned_;  // as the transport made them
};

}  // namespace bandsaw::libcuda
