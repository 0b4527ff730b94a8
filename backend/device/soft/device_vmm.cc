// Virtual memory management.
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

CUresult SoftDevice::memory_granularity(const vgpu_memory_props&, bool, uint64_t* bytes) {
  *bytes = kGranule;
  return scheduler_.error();
}

CUresult SoftDevice::memory_create(const vgpu_memory_props& props, uint64_t bytes, MemoryRef* memory,
                                   vgpu_memory_props* made) {
  if (const CUresult error = scheduler_.error()) return error;
  if (props.compression > CU_MEM_ALLOCATION_COMP_GENERIC) return CUDA_ERROR_INVALID_VALUE;
  *made = {};  // nothing is compressed, which the program may find out
  return with_room([&] { return PhysicalMemory::create(memory_, bytes, memory); });
}

CUresult SoftDevice::address_reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  if (const CUresult error = scheduler_.error()) return error;
  return reservations_.reserve(bytes, alignment, address);
}

CUresult SoftDevice::address_adopt(uint64_t address, uint64_t bytes) { return reservations_.adopt(address, bytes); }

CUresult SoftDevice::address_free(uint64_t address, uint64_t bytes) { return reservations_.free(address, bytes); }

CUresult SoftDevice::memory_map(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) {
  if (const CUresult error = scheduler_.error()) return error;
  return reservations_.map(address, bytes, offset, memory, static_cast<const PhysicalMemory&>(*memory).bytes);
}

CUresult SoftDevice::memory_unmap(uint64_t address, uint64_t bytes) {
  const CUresult result = reservations_.unmap(address, bytes);
  return result ? result : scheduler_.error();
}

CUresult SoftDevice::memory_set_access(uint64_t address, uint64_t bytes, uint32_t access) {
  if (const CUresult error = scheduler_.error()) return error;
  return reservations_.set_access(address, bytes, access);
}

CUresult SoftDevice::memory_get_access(uint64_t address, uint32_t* access) {
  if (const CUresult error = scheduler_.error()) return error;
  return reservations_.get_access(address, access);
}

}  // namespace bandsaw::soft
