// Memory pools as the guest keeps them. A pool that other processes or devices may use gives plain allocations, whose
// memory can be handed over; freeing in stream order is done here then: an event on the stream tells when the memory
// may go.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/pool_kept.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

using PoolId = std::array<uint8_t, 16>;

// Of a pool that is shared.
struct SharedPool {
  PoolId id{};            // the same in all processes
  bool imported = false;  // then nothing can be allocated from it
  uint32_t peers = 0;     // guarded by mutex; a bit for the part of each other device that may access its memory

  struct Freed {
    uint64_t base = 0, bytes = 0, event = 0;  // the event is on the stream that the memory was freed on
  };
  std::mutex mutex;  // of what follows
  std::vector<Freed> freed;
  uint64_t used = 0, most_used = 0, reserved = 0, most_reserved = 0;
};

struct PoolRecord {
  uint64_t handle = 0;
  PoolPlace place{};
  std::unique_ptr<SharedPool> shared{};  // null: nobody else uses it
  uint64_t max_bytes = 0;                // 0: as much as there is
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  std::shared_ptr<KeptPool> kept{};  // null: its memory is the device's; else the host's pool stays empty
};

// Nothing can be allocated from it.
bool is_imported(const PoolRecord& pool);

HandleTable<PoolRecord>& pool_table();
// Takes note of a pool that the host has made. One that is kept here needs `kept` only if it has a file. False: its
// handle is no handle.
bool remember_pool(PoolRecord pool);

// What cuMemPoolSetAccess says of a device that is not the pool's. NOT_SUPPORTED: the pool has memory already that
// cannot be lent.
CUresult set_pool_access(Call& call, PoolRecord& pool, VirtualGpu& gpu, bool access);
bool has_pool_access(PoolRecord& pool, const VirtualGpu& gpu);

// The pool, if memory at this range came from one that is shared; else nullptr.
SharedPool* shared_pool_of(const Range& range);

std::unique_ptr<SharedPool> make_shared_pool();  // null: no random numbers
CUresult allocate_shared(Call& call, PoolRecord& pool, uint64_t bytes, CUdeviceptr* address);
// In the order of the stream; the address is not the program's any more.
CUresult free_shared(Call& call, SharedPool& pool, const Range& range, uint64_t stream);
// At once: the work that uses it has ended.
CUresult free_shared_now(Call& call, SharedPool& pool, const Range& range);
// Gives back what is freed by now, or, if `wait`, all that was freed.
CUresult reap_shared(Call& call, SharedPool& pool, bool wait);
// Nothing: the attribute is not one of usage.
std::optional<uint64_t> shared_usage(SharedPool& pool, CUmemPool_attribute attribute);
void reset_shared_usage(SharedPool& pool, CUmemPool_attribute attribute);

}  // namespace bandsaw::libcuda
