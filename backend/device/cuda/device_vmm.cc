// Virtual memory management.
#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {

CUmemAllocationProp CudaDevice::memory_prop(const vgpu_memory_props& props) const {
  CUmemAllocationProp made = allocation_properties(device_);
  made.allocFlags.compressionType = static_cast<unsigned char>(props.compression);
  return made;
}

CUresult CudaDevice::memory_granularity(const vgpu_memory_props& props, bool recommended, uint64_t* bytes) {
  if (const CUresult result = enter()) return result;
  const CUmemAllocationProp prop = memory_prop(props);
  size_t size = 0;
  const CUresult result = check(driver_->cuMemGetAllocationGranularity(
      &size, &prop, recommended ? CU_MEM_ALLOC_GRANULARITY_RECOMMENDED : CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  *bytes = size;
  return result;
}

CUresult CudaDevice::memory_create(const vgpu_memory_props& props, uint64_t bytes, MemoryRef* memory,
                                   vgpu_memory_props* made) {
  if (const CUresult result = enter()) return result;
  if (props.compression > CU_MEM_ALLOCATION_COMP_GENERIC || bytes > INT64_MAX) return CUDA_ERROR_INVALID_VALUE;
  Charge charge(host_);
  if (const CUresult result = take_share(bytes, &charge)) return result;
  CUmemAllocationProp prop = memory_prop(props);
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult result = check(driver_->cuMemCreate(&handle, bytes, &prop, 0))) return result;
  const auto created = std::make_shared<CudaMemory>(driver_, handle, bytes, std::move(charge));
  if (config_.replaceable && props.compression == 0) give_key(created);
  *memory = created;
  const CUresult result = check(driver_->cuMemGetAllocationPropertiesFromHandle(&prop, handle));
  made->compression = prop.allocFlags.compressionType;
  return result;
}

CUresult CudaDevice::address_reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  return reservations_->reserve(bytes, alignment, address);
}

CUresult CudaDevice::address_adopt(uint64_t address, uint64_t bytes) {
  if (const CUresult result = enter()) return result;
  return reservations_->adopt(address, bytes);
}

CUresult CudaDevice::address_free(uint64_t address, uint64_t bytes) { return reservations_->free(address, bytes); }

CUresult CudaDevice::memory_map(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory) {
  if (const CUresult result = enter()) return result;
  return check(reservations_->map(address, bytes, offset, std::static_pointer_cast<CudaMemory>(memory)));
}

CUresult CudaDevice::memory_unmap(uint64_t address, uint64_t bytes) {
  if (const CUresult result = enter()) return result;
  return check(reservations_->unmap(address, bytes));
}

CUresult CudaDevice::memory_set_access(uint64_t address, uint64_t bytes, uint32_t access) {
  if (const CUresult result = enter()) return result;
  return check(reservations_->set_access(address, bytes, access));
}

CUresult CudaDevice::memory_get_access(uint64_t address, uint32_t* access) {
  if (const CUresult result = enter()) return result;
  return check(reservations_->get_access(address, access));
}

}  // namespace bandsaw::cuda
