// Virtual memory management: physical memory, reserved addresses, and what is mapped where.
#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::memory_granularity(C, const vgpu_memory_props& props, uint32_t recommended, uint64_t* bytes) {
  return device_.memory_granularity(props, recommended != 0, bytes);
}

CUresult Handlers::memory_create(C, const vgpu_memory_props& props, uint64_t size, uint64_t* memory,
                                 vgpu_memory_props* made) {
  MemoryRef object;
  const CUresult result = size != 0 ? device_.memory_create(props, size, &object, made) : CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? give(HandleKind::kMemory, std::move(object), 0, memory) : result;
}

// Mappings hold the object too.
CUresult Handlers::memory_release(C, R<Memory> memory) {
  withdraw(memory.handle);
  return table().remove(HandleKind::kMemory, memory.handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::address_reserve(C, uint64_t size, uint64_t alignment, uint64_t* address) {
  if (size == 0 || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return device_.address_reserve(size, alignment, address);
}

CUresult Handlers::address_adopt(C, uint64_t address, uint64_t size) { return device_.address_adopt(address, size); }

CUresult Handlers::address_free(C, uint64_t address, uint64_t size) { return device_.address_free(address, size); }

CUresult Handlers::memory_map(C, uint64_t address, uint64_t size, uint64_t offset, R<Memory> memory) {
  return size != 0 ? device_.memory_map(address, size, offset, memory) : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::memory_unmap(C, uint64_t address, uint64_t size) {
  return size != 0 ? device_.memory_unmap(address, size) : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::memory_set_access(C, uint64_t address, uint64_t size, uint32_t access) {
  const bool known = access == CU_MEM_ACCESS_FLAGS_PROT_NONE || access == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                     access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return size != 0 && known ? device_.memory_set_access(address, size, access) : CUDA_ERROR_INVALID_VALUE;
}

CUresult Handlers::memory_get_access(C, uint64_t address, uint32_t* access) {
  return device_.memory_get_access(address, access);
}

}  // namespace bandsaw::runner
