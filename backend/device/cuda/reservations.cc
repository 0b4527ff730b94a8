#include "backend/device/cuda/reservations.h"

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

CUmemLocation Reservations::location() const {
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = device_;
  return here;
}

// The whole part: asked for 2 MiB there, the driver of an H200 (580.159) gave some elsewhere; a whole part, as the heap
// has one, it gives where it is asked for.
bool Reservations::take_range_at(uint64_t address, uint64_t bytes) {
  const uint64_t base = window_ + VGPU_WINDOW_DEVICE_OFFSET;
  constexpr uint64_t kAll = VGPU_WINDOW_BYTES - VGPU_WINDOW_DEVICE_OFFSET;
  if (address < base || address - base >= kAll) return false;
  const uint64_t in_part = (address - base) % VGPU_WINDOW_PART_BYTES, part = address - in_part;
  if (bytes > VGPU_WINDOW_PART_BYTES - in_part || heap_->reserves(address)) return false;
  if (parts_.contains(part)) return true;
  CUdeviceptr got = 0;
  const CUresult result = driver_->cuMemAddressReserve(&got, VGPU_WINDOW_PART_BYTES, 0, part, 0);
  if (result == CUDA_SUCCESS && got == part) return parts_.insert(part).second;
  if (result == CUDA_SUCCESS) driver_->cuMemAddressFree(got, VGPU_WINDOW_PART_BYTES);
  log::warn("another device's addresses at {:#x} cannot be reserved: {}, got {:#x}", part, driver_->describe(result),
            static_cast<uint64_t>(got));
  return false;
}

// A part of another device stays reserved: there will be more of its memory.
void Reservations::give_back_range(uint64_t address, uint64_t whole) {
  if (heap_->reserves(address)) heap_->unreserve(address, whole);
}

Reservations::~Reservations() {
  clear();
  for (const uint64_t part : parts_) driver_->cuMemAddressFree(part, VGPU_WINDOW_PART_BYTES);
}

CUresult Reservations::map_memory(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) {
  const bool own = heap_->reserves(address);
  if (own && heap_->is_guarded() && memory->read_only) return CUDA_ERROR_NOT_SUPPORTED;  // a write would fault
  CUresult result = own ? heap_->open(address, bytes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuMemMap(address, bytes, offset, static_cast<const CudaMemory&>(*memory).handle, 0);
  if (!own || !heap_->is_guarded()) return result;
  if (result != CUDA_SUCCESS) heap_->close(address, bytes);
  // Guarded kernels do not fault there, whatever the program allows itself.
  return result == CUDA_SUCCESS ? protect(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) : result;
}

CUresult Reservations::unmap_memory(uint64_t address, uint64_t bytes) {
  const CUresult result = driver_->cuMemUnmap(address, bytes);
  return result == CUDA_SUCCESS && heap_->reserves(address) ? heap_->close(address, bytes) : result;
}

CUresult Reservations::protect(uint64_t address, uint64_t bytes, uint32_t access) {
  CUmemAccessDesc wanted{};
  wanted.location = location();
  const bool all = heap_->is_guarded() && heap_->reserves(address);
  wanted.flags = all ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : static_cast<CUmemAccess_flags>(access);
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
