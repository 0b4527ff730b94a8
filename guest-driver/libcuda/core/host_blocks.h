// Host memory that all devices of the process reach: pinned, registered and managed memory, at one address each. Each
// block belongs to the device for which it was made; the runners of the others see it as well, from their device's
// first context on.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

// Whole pages of a file in memory (tmpfs).
struct FilePages {
  int file = -1;
  uint64_t offset = 0, bytes = 0;
};

// Thread-safe. Every call may take a round trip to each host side.
class HostBlocks {
 public:
  // As SharedMemory::allocate, release and release_idle, with VGPU_REGION_DEVICE_VISIBLE. What is kept for later is
  // seen by its own device only.
  CUresult allocate(VirtualGpu& gpu, uint64_t bytes, SharedBlock* block);
  CUresult release(uint64_t address);
  CUresult release_idle(uint64_t address);

  // As SharedMemory::pin and unpin.
  CUresult pin(VirtualGpu& gpu, void* address, uint64_t bytes, uint32_t flags);
  // As SharedMemory::share_at, of a block of this device's; ended by unpin.
  CUresult share_at(VirtualGpu& gpu, const SharedBlock& block, void* address, uint32_t flags);
  // As pin or, where that is not possible, as SharedMemory::share_file. The file may be closed afterwards.
  CUresult share_file(VirtualGpu& gpu, const FilePages& pages, void* address, uint32_t flags);
  // `memory`, if given, becomes that of the device whose it was.
  CUresult unpin(void* address, SharedMemory** memory = nullptr);

  // The device is about to have a context: it sees all there is, and what is made from now on.
  CUresult show_all(VirtualGpu& gpu);

 private:
  struct Entry {
    VirtualGpu* gpu = nullptr;  // whose it is
    SharedBlock block{};
    void* again = nullptr;     // of share_at: where else it lies, with `again_flags`
    uint32_t again_flags = 0;  // of `pages`, too
    FilePages pages{};         // of share_file, where pages are not pinned; the descriptor is the entry's
    uint32_t shown = 0;        // a bit for the part of each other device that sees it
  };
  // With mutex_ held.
  CUresult show(Entry* entry, VirtualGpu* gpu);
  CUresult show_to_active(Entry* entry);
  CUresult hide(Entry* entry);
  CUresult show_one(const Entry& entry, VirtualGpu& gpu);
  CUresult keep(Entry entry, uint64_t key);
  // Without mutex_. Forgets the block, which `then` of its device's memory releases.
  CUresult forget(uint64_t address, CUresult (SharedMemory::*then)(void*));

  std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;  // by first page
  uint32_t active_ = 0;                // a bit for the part of each device that has had a context
};

// Never freed.
HostBlocks& host_blocks();

}  // namespace bandsaw::libcuda
