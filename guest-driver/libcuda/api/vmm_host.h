// Physical host memory: what cuMemCreate makes for a host location, CU_MEM_LOCATION_TYPE_HOST*. It is a file in memory
// (memfd), which the program maps at addresses that lie where its pinned memory lies, so that devices can have the same
// pages at the same addresses.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace bandsaw::libcuda {

bool is_host_location(CUmemLocationType type);
// Of memory with a host location: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED (said in the log), or success.
CUresult check_host_prop(const CUmemAllocationProp& prop);

// Thread-safe. Called by the entry points of vmm.cc and vmm_share.cc, whose arguments are checked for null only.
class HostSpace {
 public:
  static HostSpace& get();

  bool is_memory(CUmemGenericAllocationHandle memory) const;
  CUresult create(size_t bytes, const CUmemAllocationProp& prop, CUmemGenericAllocationHandle* memory);
  CUresult release(CUmemGenericAllocationHandle memory);
  CUresult retain(CUmemGenericAllocationHandle memory);
  CUresult properties(CUmemGenericAllocationHandle memory, CUmemAllocationProp* prop) const;
  // The memory itself: who has the descriptor has the memory. The caller closes it.
  CUresult share(CUmemGenericAllocationHandle memory, int* file) const;
  // CUDA_ERROR_NOT_FOUND: it is no descriptor of host memory. The descriptor stays the caller's.
  CUresult import(int file, CUmemGenericAllocationHandle* memory);

  // Addresses must be chosen before it is known what is mapped there. CUDA_ERROR_NOT_FOUND: no host memory of this size
  // waits to be mapped, so these are for a device's.
  CUresult reserve(size_t bytes, size_t alignment, CUdeviceptr* address);
  // Whether reserve() gave these out.
  bool reserves(CUdeviceptr address) const;
  CUresult free(CUdeviceptr address, size_t bytes);
  CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory);
  CUresult unmap(CUdeviceptr address, size_t bytes);
  CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc& access);
  CUresult access(CUdeviceptr address, const CUmemLocation& location, unsigned long long* flags) const;

 private:
  HostSpace() = default;
};

}  // namespace bandsaw::libcuda
