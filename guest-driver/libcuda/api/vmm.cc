// Virtual memory management: reserved addresses, physical memory, and the one mapped at the other.
#include "guest-driver/libcuda/api/vmm.h"

#include <memory>
#include <mutex>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Its handle stays on the wire until the program has released it and nothing is mapped: then cuMemRetainAllocation-
// Handle finds the same handle again.
struct MemoryRecord {
  uint64_t handle = 0;
  uint64_t references = 1, mappings = 0;  // guarded by Memories::mutex
  CUmemAllocationProp prop{};
};

struct Memories {
  HandleTable<MemoryRecord> table;
  std::mutex mutex;
};

Memories& memories() {
  static Memories& all = *new Memories;
  return all;
}

CUresult check_prop(const CUmemAllocationProp& prop) {
  if (prop.type == CU_MEM_ALLOCATION_TYPE_INVALID || prop.location.type == CU_MEM_LOCATION_TYPE_INVALID) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED || prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    log_unsupported("cuMemCreate of host memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop.win32HandleMetaData) return CUDA_ERROR_INVALID_VALUE;
  const bool exported = prop.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (exported || prop.allocFlags.gpuDirectRDMACapable || prop.allocFlags.usage) {
    log_unsupported("cuMemCreate for other handles than descriptors, peer DMA or tiles");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return check_device(prop.location.id);
}

vgpu_memory_props wire_props(const CUmemAllocationProp& prop) { return {prop.allocFlags.compressionType, 0}; }

// Releases the memory on the host when nobody holds it any more. Called with the lock held.
CUresult drop_if_unused(Call& call, MemoryRecord* record) {
  if (record->references || record->mappings) return CUDA_SUCCESS;
  const uint64_t handle = record->handle;
  const CUresult result = wire::memory_release(call, handle);
  memories().table.remove(handle);
  return result;
}

// Addresses that were reserved while another device was current lie where that one's runner looks for them alone.
bool same_device(const VirtualGpu& gpu, uint64_t memory) {
  if (gpu.part == part_of_handle(memory)) return true;
  log_unsupported("mapping memory of one device at addresses that were reserved while another was current");
  return false;
}

// Reserved addresses are a device's.
void go_to_owner(Call& call, uint64_t address) {
  if (VirtualGpu* const gpu = gpu_of_address(address)) call.go_to(*gpu);
}

CUresult forget_mapping(Call& call, uint64_t handle) {
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(handle);
  if (!record || !record->mappings) return CUDA_SUCCESS;
  --record->mappings;
  return drop_if_unused(call, record);
}

}  // namespace

CUresult adopt_memory(uint64_t handle, const CUmemAllocationProp& prop) {
  auto record = std::make_unique<MemoryRecord>();
  record->handle = handle;
  record->prop = prop;
  return memories().table.insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

bool is_memory(uint64_t handle) { return memories().table.find(handle) != nullptr; }

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

// The wanted address is ignored, which NVIDIA's driver may do too.
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || bytes % kPage || (alignment & (alignment - 1)) || flags) return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = 0;
  const CUresult result = wire::address_reserve(call, bytes, alignment, &base);
  if (result == CUDA_SUCCESS) *address = base;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  go_to_owner(call, address);
  return wire::address_free(call, address, bytes);
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  Call call;
  if (call.failed()) return call.status();
  if (!bytes || !prop) return CUDA_ERROR_INVALID_VALUE;
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = check_prop(*prop);
  uint64_t size = 0;
  if (result == CUDA_SUCCESS) call.go_to(gpu_at(prop->location.id));
  if (result == CUDA_SUCCESS) result = wire::memory_granularity(call, wire_props(*prop), option, &size);
  if (result == CUDA_SUCCESS) *bytes = size;
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* memory, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!memory || !bytes || !prop || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_prop(*prop);
  if (result != CUDA_SUCCESS) return result;
  uint64_t handle = 0;
  call.go_to(gpu_at(prop->location.id));
  vgpu_memory_props made{};
  result = wire::memory_create(call, wire_props(*prop), bytes, &handle, &made);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp is = *prop;
  is.allocFlags.compressionType = static_cast<unsigned char>(made.compression);
  *memory = handle;
  return adopt_memory(handle, is);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) {
  Call call;
  if (call.failed()) return call.status();
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(memory);
  if (!record || !record->references) return CUDA_ERROR_INVALID_VALUE;
  --record->references;
  return drop_if_unused(call, record);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* memory, void* address) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  const auto range = AddressMap::get().find(reinterpret_cast<uint64_t>(address));
  if (!memory || !range || range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(memories().mutex);
  MemoryRecord* const record = memories().table.find(range->owner);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  ++record->references;
  *memory = record->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle memory) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  const MemoryRecord* const record = memories().table.find(memory);
  if (!prop || !record) return CUDA_ERROR_INVALID_VALUE;
  *prop = record->prop;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory,
                  unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || flags) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(memories().mutex);
    MemoryRecord* const record = memories().table.find(memory);
    if (!record || !record->references) return CUDA_ERROR_INVALID_VALUE;
    ++record->mappings;  // from now on it stays when the program releases it
  }
  const bool apart = gpu_of_address(address) && !same_device(*gpu_of_address(address), memory);
  const CUresult result = apart ? CUDA_ERROR_NOT_SUPPORTED : wire::memory_map(call, address, bytes, offset, memory);
  if (result != CUDA_SUCCESS) {
    forget_mapping(call, memory);
    return result;
  }
  AddressMap::get().add({.base = address, .bytes = bytes, .kind = RangeKind::kMapped, .owner = memory});
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  const auto first = AddressMap::get().find(address);
  if (!bytes || !first || first->kind != RangeKind::kMapped || first->base != address) return CUDA_ERROR_INVALID_VALUE;
  if (!AddressMap::get().covers(*first, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  go_to_owner(call, address);
  CUresult result = wire::memory_unmap(call, address, bytes);  // refuses parts of mappings
  if (result != CUDA_SUCCESS) return result;
  for (uint64_t at = address; at < address + bytes;) {
    const auto range = AddressMap::get().take(at);
    if (!range) break;
    const CUresult dropped = forget_mapping(call, range->owner);
    if (result == CUDA_SUCCESS) result = dropped;
    at += range->bytes;
  }
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  Call call;
  if (call.failed()) return call.status();
  if (!address || !bytes || !access || !count) return CUDA_ERROR_INVALID_VALUE;
  go_to_owner(call, address);
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_device(access[i].location.id);
    if (result == CUDA_SUCCESS && &gpu_at(access[i].location.id) != &call.gpu()) {
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
      log_unsupported("access of one virtual GPU to another's memory (cuDeviceCanAccessPeer says no)");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) result = wire::memory_set_access(call, address, bytes, access[i].flags);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  Call call;
  if (call.failed()) return call.status();
  if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_device(location->id);
  uint32_t access = 0;
  go_to_owner(call, address);
  if (result == CUDA_SUCCESS && &gpu_at(location->id) == &call.gpu())
    result = wire::memory_get_access(call, address, &access);
  if (result == CUDA_SUCCESS) *flags = access;
  return result;
}

}  // extern "C"
