// What programs say of pools and ask of them: attributes, and who may access their memory.
#include <cstring>

#include "guest-driver/libcuda/api/freed_memory.h"
#include "guest-driver/libcuda/api/pool.h"
#include "guest-driver/libcuda/api/vmm_host.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Newer than the cuda.h that this library is built with: what the pool was made with.
enum PropertyAttribute {
  kAllocationType = 9,
  kHandleTypes = 10,
  kLocationId = 11,
  kLocationType = 12,
  kMaxBytes = 13,
  kDecompression = 14,
};

// How many bytes an attribute's value has, 4 or 8; 0: there is no such attribute.
size_t attribute_bytes(CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return sizeof(int);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return sizeof(cuuint64_t);
    default:
      return 0;
  }
}

// False: it is no such attribute.
bool give_property(const PoolRecord& pool, int attribute, void* value) {
  const auto give = [value](auto number) {
    std::memcpy(value, &number, sizeof(number));
    return true;
  };
  switch (attribute) {
    case kAllocationType:
      return give(pool.place.type);
    case kHandleTypes:
      return give(pool.handle_types);
    case kLocationId:
      return give(pool.place.id);
    case kLocationType:
      return give(pool.place.where);
    case kMaxBytes:
      return give(cuuint64_t{pool.max_bytes});
    case kDecompression:
      return give(int{0});
    default:
      return false;
  }
}

// Nothing: the host knows it.
std::optional<uint64_t> known_here(const PoolRecord& pool, CUmemPool_attribute attribute) {
  if (pool.kept) return pool.kept->attribute(attribute);
  return pool.shared ? shared_usage(*pool.shared, attribute) : std::nullopt;
}

CUresult check_new_value(CUmemPool_attribute attribute, uint64_t number) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return CUDA_ERROR_INVALID_VALUE;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return number ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;  // a high-water mark can only be reset
    default:
      return CUDA_SUCCESS;
  }
}

bool is_access(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// The program's own processor always reaches this memory.
CUresult set_kept_access(KeptPool& pool, const CUmemAccessDesc& access) {
  const bool all = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (is_host_location(access.location.type)) return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_access(access.flags)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(access.location.id); result != CUDA_SUCCESS) return result;
  if (pool.place().managed()) return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // everybody's
  pool.set_access(gpu_at(access.location.id), access.flags);
  return CUDA_SUCCESS;
}

// A device always reads and writes its own pools.
CUresult set_access(Call& call, PoolRecord& pool, const CUmemAccessDesc& access) {
  if (pool.kept) return set_kept_access(*pool.kept, access);
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(access.location.id); result != CUDA_SUCCESS) return result;
  VirtualGpu& gpu = gpu_at(access.location.id);
  if (gpu.part == part_of_handle(pool.handle)) {
    return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  give_back_freed();
  return set_pool_access(call, pool, gpu, access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (call.failed()) return call.status();
  const size_t bytes = attribute_bytes(attribute);
  const PoolRecord* const record = pool_table().find(pool);
  if (!value || !bytes || !record) return CUDA_ERROR_INVALID_VALUE;
  uint64_t number = 0;
  std::memcpy(&number, value, bytes);  // little endian, as the wire
  if (const CUresult result = check_new_value(attribute, number); result != CUDA_SUCCESS) return result;
  if (record->kept) return record->kept->set_attribute(attribute, number) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (record->shared && shared_usage(*record->shared, attribute)) {
    reset_shared_usage(*record->shared, attribute);
    return CUDA_SUCCESS;
  }
  give_back_freed();
  return wire::pool_set_attribute(call, record->handle, attribute, number);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (call.failed()) return call.status();
  const PoolRecord* const record = pool_table().find(pool);
  if (!value || !record) return CUDA_ERROR_INVALID_VALUE;
  if (give_property(*record, attribute, value)) return CUDA_SUCCESS;
  const size_t bytes = attribute_bytes(attribute);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto known = known_here(*record, attribute);
  uint64_t number = known.value_or(0);
  CUresult result = CUDA_SUCCESS;
  if (!known) {
    give_back_freed();
    result = wire::pool_get_attribute(call, record->handle, attribute, &number);
  }
  if (result == CUDA_SUCCESS) std::memcpy(value, &number, bytes);
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  Call call;
  if (call.failed()) return call.status();
  PoolRecord* const record = pool_table().find(pool);
  if (!record || !map || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult result = set_access(call, *record, map[i]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  PoolRecord* const record = pool_table().find(pool);
  if (!flags || !location || !record) return CUDA_ERROR_INVALID_VALUE;
  if (record->kept && is_host_location(location->type)) {
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_device(location->id);
  if (result != CUDA_SUCCESS) return result;
  const VirtualGpu& gpu = gpu_at(location->id);
  if (record->kept) {
    *flags = record->kept->access(gpu);
    return CUDA_SUCCESS;
  }
  const bool access = gpu.part == part_of_handle(record->handle) || has_pool_access(*record, gpu);
  *flags = access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

}  // extern "C"
