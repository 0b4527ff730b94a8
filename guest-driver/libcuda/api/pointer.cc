// What an address is.
#include <cstring>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"

namespace bandsaw::libcuda {
namespace {

constexpr int kUnknownOrdinal = -2;  // what cuPointerGetAttributes says of memory that CUDA does not know

template <typename T>
CUresult put_value(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

// Addresses that are mapped, or may be, are told with all that were reserved with them.
CUresult put_range(void* data, CUpointer_attribute attribute, const Reservation& range) {
  return put_value(data, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? range.bytes : range.base);
}

bool host_reads(const Range& range) { return !range.on_device(); }

CUresult attribute_of(void* data, CUpointer_attribute attribute, const Range& range, uint64_t address) {
  const bool of_pool = range.pool && range.kind != RangeKind::kGraph;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of a pool or of cuMemCreate belongs to none.
      return put_value(
          data, to_program(of_pool || range.kind == RangeKind::kMapped ? nullptr : context_of_handle(range.context)));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
      const bool host = range.kind == RangeKind::kHost || range.kind == RangeKind::kRegistered;
      return put_value(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put_value(data, CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host_reads(range)) return CUDA_ERROR_INVALID_VALUE;
      return put_value(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put_value(data, int{range.sync_memops});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put_value(data, static_cast<unsigned long long>(range.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put_value(data, int{range.kind == RangeKind::kManaged});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put_value(data, gpu_of(range).ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put_range(data, attribute, reservation_around(address).value_or(Reservation{range.base, range.bytes}));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put_value(data, CUdeviceptr{range.base});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put_value(data, size_t{range.bytes});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put_value(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put_value(data, 0ull);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      unsigned long long granted = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
      const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_of(range).ordinal};
      const CUresult result =
          range.kind == RangeKind::kMapped ? cuMemGetAccess(&granted, &here, range.base) : CUDA_SUCCESS;
      return result == CUDA_SUCCESS ? put_value(data, static_cast<int>(granted)) : result;
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put_value(data, from_wire<CUmemoryPool>(range.pool));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put_value(data, int{range.kind == RangeKind::kDevice && can_share_memory()});
    // Peer DMA does not reach into a virtual GPU.
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put_value(data, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      log_unsupported("pointer attribute P2P_TOKENS");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// The value that stands for "CUDA does not know this" in cuPointerGetAttributes.
CUresult nothing(void* data, CUpointer_attribute attribute, uint64_t address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put_value(data, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put_range(data, attribute, reservation_around(address).value_or(Reservation{}));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return put_value(data, address);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return put_value(data, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS{});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put_value(data, kUnknownOrdinal);
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put_value(data, 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put_value(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const auto range = range_around(address);
  return range ? attribute_of(data, attribute, *range, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!count || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  const auto range = range_around(address);
  for (unsigned i = 0; i < count; ++i) {
    if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        range ? attribute_of(data[i], attributes[i], *range, address) : nothing(data[i], attributes[i], address);
    // An attribute that this kind of memory does not have reads as nothing.
    if (range && result == CUDA_ERROR_INVALID_VALUE) result = nothing(data[i], attributes[i], 0);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// SYNC_MEMOPS asks that synchronous copies and fills of this memory never return early. It is only remembered: no peer
// device reads the memory, so nobody could see the difference.
CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(address);
  if (range && range->kind == RangeKind::kMapped) return CUDA_ERROR_NOT_SUPPORTED;
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  int on = 0;
  std::memcpy(&on, value, sizeof(on));
  const bool known = AddressMap::get().update(address, [on](Range& found) { found.sync_memops = on != 0; });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
