#include "backend/device/cuda/reservations.h"

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::cuda {

CUmemLocation Reservations::location() const {
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device_;
  return here;
}

bool Reservations::take_range_at(uint64_t address, uint64_t bytes) {
  const uint64_t base = window_ + VGPU_WINDOW_DEVICE_OFFSET;
  constexpr uint64_t kAll = VGPU_WINDOW_BYTES - VGPU_WINDOW_DEVICE_OFFSET;
  if (address < base || address - base >= kAll || bytes > kAll - (address - base)) return false;
  if (heap_->reserves(address) || heap_->reserves(address + bytes - 1)) return false;
  CUdeviceptr got = 0;
  const CUresult result = driver_->cuMemAddressReserve(&got, bytes, 0, address, 0);
  if (result != CUDA_SUCCESS) return false;
  if (got == address) return true;
  driver_->cuMemAddressFree(got, bytes);
  return false;
}

void Reservations::give_back_range(uint64_t address, uint64_t whole) {
  if (heap_->reserves(address)) return heap_->unreserve(address, whole);
  driver_->cuMemAddressFree(address, whole);
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
