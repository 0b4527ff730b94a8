#include "backend/device/cuda/reservations.h"

namespace bandsaw::cuda {

CUmemLocation Reservations::location() const {
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device_;
  return here;
}

CUresult Reservations::map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) {
  return driver_->cuMemMap(address, bytes, offset, static_cast<const CudaMemory&>(*memory).handle, 0);
}

CUresult Reservations::unmap_memory(uint64_t address, uint64_t bytes) { return driver_->cuMemUnmap(address, bytes); }

CUresult Reservations::protect(uint64_t address, uint64_t bytes, uint32_t access) {
  CUmemAccessDesc wanted{};
  wanted.location = location();
  wanted.flags = static_cast<CUmemAccess_flags>(access);
  return driver_->cuMemSetAccess(address, bytes, &wanted, 1);
}

// Also where nothing is mapped: the driver knows what is right there.
CUresult Reservations::access_at(uint64_t address, bool, uint32_t* access) {
  unsigned long long flags = 0;
  const CUmemLocation here = location();
  const CUresult result = driver_->cuMemGetAccess(&flags, &here, address);
  *access = static_cast<uint32_t>(flags);
  return result;
}

}  // namespace bandsaw::cuda
