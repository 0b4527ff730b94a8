// Memory that the runner sees too. Blocks lie in the lower half of the process's address window, at the same address
// on both sides, so kernels and copies use them in place.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>

#include "guest-driver/libcuda/core/shared_block.h"
#include "guest-driver/libcuda/core/spare_blocks.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::libcuda {

class SharedMemory;
class Transport;
struct VirtualGpu;

// A range of the program's memory that stays pinned from one copy to the next. The kernel changes `*word` when the
// program's addresses no longer mean the pinned pages.
struct CachedPin {
  SharedBlock block;
  const uint32_t* word = nullptr;
  unsigned users = 0;  // copies that use it now

  uint64_t begin() const { return reinterpret_cast<uint64_t>(block.address); }
  uint64_t end() const { return begin() + block.bytes; }
  bool stale() const { return __atomic_load_n(word, __ATOMIC_ACQUIRE) != block.region; }
};

// Memory pinned for a copy: see SharedMemory::borrow.
struct BorrowedPin {
  CachedPin* cached = nullptr;  // nullptr: not in the cache, and `address` tells which it is
  void* address = nullptr;
};

// Memory that one virtual GPU's runner sees. Thread-safe. Every call may take a round trip to the host.
class SharedMemory {
 public:
  explicit SharedMemory(VirtualGpu* gpu);  // whose transport is open

  // Zeroed, page-aligned memory; `flags`: VGPU_REGION_DEVICE_VISIBLE when kernels may use it.
  // CUDA_ERROR_OUT_OF_MEMORY, or kLostHost.
  CUresult allocate(uint64_t bytes, uint32_t flags, SharedBlock* block);
  // Returns when the host uses it no more. `address` is a block's first byte; else CUDA_ERROR_INVALID_VALUE.
  CUresult release(void* address);
  // As release(), of a block that nothing on the host uses any more: it may be kept for a later allocate(), until room
  // is needed or drop_spares() is called.
  CUresult release_idle(void* address);
  // Releases what release_idle() has kept.
  void drop_spares();

  // Makes the program's own memory known to the host: the whole pages around [address, address + bytes).
  // CUDA_ERROR_NOT_SUPPORTED where the transport cannot (direct mode), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
  // when a page of it is known already.
  CUresult pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block);
  CUresult unpin(void* address);
  // Where pages cannot be pinned. The program has mapped all of `block` at `address` (a page boundary) too. Tells the
  // host, until unpin(address). CUDA_ERROR_NOT_SUPPORTED where pages can be pinned.
  CUresult share_at(const SharedBlock& block, void* address, uint32_t flags);
  // Where pages cannot be pinned: those of a file, as Transport::share_file, until unpin(address).
  CUresult share_file(int file, uint64_t offset, uint64_t bytes, void* address, uint32_t flags);

  // Memory of the program at an address of the device's part, which the host sees for copies only, until unback(). The
  // pages are zeros at first.
  CUresult back(uint64_t address, uint64_t bytes, SharedBlock* block);
  CUresult unback(const SharedBlock& block);

  // Makes another virtual GPU's block known to this one too, at its address, until unpin(address).
  CUresult also(const SharedBlock& block);

  // For a copy from the program's own memory, or to it (`write`): pins its pages, or finds them in the pin cache. After
  // CUDA_SUCCESS, call give_back(pin) when the copy is done. The pages stay pinned for later copies until the program
  // gives their addresses other pages, which it may do at any time, or until room is needed. Errors as of pin(); the
  // copy can then be staged. `only_cached`: CUDA_ERROR_NOT_FOUND instead of pinning.
  CUresult borrow(void* address, uint64_t bytes, bool write, bool only_cached, BorrowedPin* pin);
  CUresult give_back(const BorrowedPin& pin);

  // The block or pinned range that holds all of [address, address + bytes); false if there is none.
  bool find(const void* address, uint64_t bytes, SharedBlock* block);

 private:
  CUresult result_of(int error) const;
  bool take_out(void* address, SharedBlock* block);
  bool take_spare(uint64_t bytes, uint32_t flags, SharedBlock* block);
  // These are called with mutex_ held.
  bool overlaps_block(uint64_t begin, uint64_t end) const;
  void release_all(const std::vector<SharedBlock>& blocks);
  // pin_cache.cc
  CachedPin* find_cached(uint64_t begin, uint64_t end, bool write);
  int pin_and_cache(uint64_t begin, uint64_t end, bool write, CachedPin** pin);
  template <typename Condition>
  unsigned drop_cached(Condition which);
  bool make_room(uint64_t bytes);
  bool drop_idle();
  void drop_overlapping(uint64_t begin, uint64_t end, std::unique_lock<std::mutex>& lock);

  VirtualGpu* const gpu_;
  Transport* const transport_;
  std::mutex mutex_;
  std::map<uint64_t, SharedBlock> blocks_;  // by first address; pinned ranges as well
  std::map<uint64_t, SharedBlock> pinned_;  // as the transport made them
  SpareBlocks spares_;                      // still the host's to see, and in no other table
  std::list<CachedPin> pin_cache_;          // the one used last is first; they may overlap each other
  uint64_t cached_bytes_ = 0;
  const uint64_t cached_bytes_most_;
  std::condition_variable cached_idle_;  // a cached pin lost its last user
};

// Whether the guest or the host has run out of room. Unused pins and spare blocks can then be dropped, and the request
// repeated.
bool is_shortage(int error);

}  // namespace bandsaw::libcuda
