// Managed memory.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/core/call.h"
#include "memory/managed/residency.h"

namespace bandsaw::libcuda {

// Frees an allocation of cuMemAllocManaged after all work that may use it.
CUresult free_managed(Call& call, const Range& range);

// For pools: memory of no context, whole pages of it, that nobody's work uses when it is released. begin_unowned() says
// that it is given out, in the address map already, with all that managed memory is at first but for its preferred
// location (CU_MEM_LOCATION_TYPE_NONE: it has none).
CUresult allocate_unowned(Call& call, uint64_t bytes, uint64_t* base);
void begin_unowned(uint64_t base, size_t bytes, const CUmemLocation& preferred);
CUresult release_unowned(uint64_t base);

// Checks what cuMemPrefetchAsync takes, moves what moves, and remembers where to.
CUresult prefetch(Call& call, CUdeviceptr address, size_t bytes, CUmemLocation location, uint64_t stream);

// managed_advice.cc. Whether it is a location that prefetching and advice may name; whether one managed range holds all
// of [address, address + bytes), `bytes` above 0.
CUresult check_location(const CUmemLocation& location);
CUresult check_managed(CUdeviceptr address, size_t bytes);
void prefetched_to(CUdeviceptr address, size_t bytes, const CUmemLocation& location);
void forget_advice(const Range& range);
CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location);
// What advice means for a touch of that page; whether all of these pages are read much more than written.
bandsaw::managed::Bias bias_of(uint64_t page);
bool is_read_mostly(uint64_t address, uint64_t bytes);

// A location as the first version of these functions named it: an ordinal, or CU_DEVICE_CPU.
inline CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

}  // namespace bandsaw::libcuda
