// Stream-ordered memory: pools, and allocation and freeing in stream order.
#include <cstring>

#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/pool.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct Pools {
  HandleTable<PoolRecord> table;
  std::mutex mutex;
  struct {
    uint64_t standard = 0;  // the device's default pool, once somebody asked
    uint64_t current = 0;   // 0: the default one
  } of[kGpusMax];           // by part
};

Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

CUresult default_pool(VirtualGpu& gpu, uint64_t* pool) {
  Pools& all = pools();
  std::lock_guard lock(all.mutex);
  uint64_t& standard = all.of[gpu.part].standard;
  if (!standard) {
    Call call(gpu);
    const CUresult result = wire::pool_default(call, &standard);
    if (result != CUDA_SUCCESS) return result;
    if (!remember_pool(standard, nullptr)) return CUDA_ERROR_UNKNOWN;
  }
  *pool = standard;
  return CUDA_SUCCESS;
}

CUresult current_pool(VirtualGpu& gpu, uint64_t* pool) {
  {
    Pools& all = pools();
    std::lock_guard lock(all.mutex);
    if (const uint64_t current = all.of[gpu.part].current) {
      *pool = current;
      return CUDA_SUCCESS;
    }
  }
  return default_pool(gpu, pool);
}

// Whose pool memory in this stream's order comes from.
VirtualGpu& gpu_of_stream(CUstream stream) {
  const uint64_t handle = wire_stream(stream);
  VirtualGpu* const gpu = handle > VGPU_STREAM_PER_THREAD ? gpu_of_part(part_of_handle(handle)) : nullptr;
  return gpu ? *gpu : current_gpu();
}

CUresult refuse_other_device(const char* what) {
  log_unsupported(what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// A GPU's driver chooses addresses of pools itself, outside the window. Those of two devices must not be the same.
CUresult check_apart(Call& call, uint64_t base, uint64_t bytes, uint64_t stream) {
  if (gpu_count() == 1 || gpu_of_address(base)) return CUDA_SUCCESS;
  for (const uint64_t end : {base, base + bytes - 1}) {
    const auto known = AddressMap::get().find(end);
    if (!known || &gpu_of(*known) == &call.gpu()) continue;
    const CUresult result = wire::memory_free_async(call, base, stream);
    return result != CUDA_SUCCESS ? result : refuse_other_device("pools of two devices at the same addresses");
  }
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* address, size_t bytes, uint64_t pool, CUstream stream,
                  const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!call.require_context()) return call.status();
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0, base = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  *address = 0;
  if (!bytes) return CUDA_SUCCESS;
  bool capturing = false;
  result = is_capturing(on, &capturing);
  if (result == CUDA_SUCCESS && !call.is_here(pool))
    result = refuse_other_device("memory of one device's pool in the order of another's stream");
  PoolRecord* const record = pools().table.find(pool);
  if (result == CUDA_SUCCESS && record && record->shared) {
    return capturing ? CUDA_ERROR_NOT_SUPPORTED : allocate_shared(call, *record, bytes, address);
  }
  if (result == CUDA_SUCCESS) result = wire::memory_alloc_async(call, pool, bytes, on, &base);
  if (result == CUDA_SUCCESS) result = check_apart(call, base, bytes, on);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().add({.base = base,
                         .bytes = bytes,
                         .kind = capturing ? RangeKind::kGraph : RangeKind::kPool,
                         .context = call.context(),
                         .pool = pool});
  *address = base;
  return CUDA_SUCCESS;
}

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

CUresult check_pool_device(const CUmemLocation* location, CUmemAllocationType type) {
  if (!location || location->type == CU_MEM_LOCATION_TYPE_NONE || type == CU_MEM_ALLOCATION_TYPE_INVALID) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    log_unsupported("memory pools of host or managed memory");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return check_device(location->id);
}

CUresult give_pool(CUmemoryPool* pool, CUdevice device, CUresult (*which)(VirtualGpu&, uint64_t*)) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = which(gpu_at(device), &handle);
  if (result == CUDA_SUCCESS) *pool = from_wire<CUmemoryPool>(handle);
  return result;
}

CUresult set_current(CUdevice device, CUmemoryPool pool) {
  const uint32_t part = gpu_at(device).part;
  const PoolRecord* const record = pools().table.find(pool);
  if (!record || part_of_handle(to_wire(pool)) != part) return CUDA_ERROR_INVALID_VALUE;
  if (record->shared && record->shared->imported) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pools().mutex);
  pools().of[part].current = to_wire(pool);
  return CUDA_SUCCESS;
}

}  // namespace

HandleTable<PoolRecord>& pool_table() { return pools().table; }

bool remember_pool(uint64_t handle, std::unique_ptr<SharedPool> shared, uint64_t max_bytes) {
  auto record = std::make_unique<PoolRecord>();
  record->handle = handle;
  record->shared = std::move(shared);
  record->max_bytes = max_bytes;
  return pools().table.insert(std::move(record)) != nullptr;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  uint64_t pool = 0;
  const CUresult result = current_pool(gpu_of_stream(stream), &pool);
  return result != CUDA_SUCCESS ? result : allocate(address, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!pools().table.find(pool)) return CUDA_ERROR_INVALID_VALUE;
  return allocate(address, bytes, to_wire(pool), stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  Call call;
  if (!call.require_context()) return call.status();
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (!address) return CUDA_SUCCESS;
  const auto range = AddressMap::get().find(address);
  const bool freeable = range && range->base == address && range->kind <= RangeKind::kGraph;
  if (!freeable) return CUDA_ERROR_INVALID_VALUE;
  bool capturing = false;
  result = is_capturing(on, &capturing);
  if (SharedPool* const shared = shared_pool_of(*range); shared && result == CUDA_SUCCESS) {
    if (&gpu_of(*range) != &call.gpu()) return refuse_other_device("a shared pool's memory freed on another device");
    return capturing ? CUDA_ERROR_NOT_SUPPORTED : free_shared(call, *shared, *range, on);
  }
  if (result == CUDA_SUCCESS && &gpu_of(*range) != &call.gpu()) {
    result = do_across(call, on, gpu_of(*range), [address](Call& there, uint64_t stream_there) {
      return wire::memory_free_async(there, address, stream_there);
    });
  } else if (result == CUDA_SUCCESS) {
    const bool graph = range->kind == RangeKind::kGraph && !capturing;
    result = graph ? wire::graph_memory_free(call, address, on) : wire::memory_free_async(call, address, on);
  }
  // A captured free happens at each launch of the graph, and the next launch allocates the memory again: the address
  // stays known.
  if (result == CUDA_SUCCESS && !capturing && range->kind != RangeKind::kGraph) AddressMap::get().forget(*range);
  return result;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  Call call;
  if (call.failed()) return call.status();
  if (!pool || !props) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_pool_device(&props->location, props->allocType);
  if (result != CUDA_SUCCESS) return result;
  if (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    log_unsupported("memory pools that are exported by other handles than descriptors");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::unique_ptr<SharedPool> shared;
  if (props->handleTypes) {
    if (!can_share_memory()) return CUDA_ERROR_NOT_SUPPORTED;
    if (!(shared = make_shared_pool())) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  uint64_t handle = 0;
  call.go_to(gpu_at(props->location.id));
  result = wire::pool_create(call, vgpu_pool_props{props->maxSize, 0}, &handle);
  if (result != CUDA_SUCCESS) return result;
  if (!remember_pool(handle, std::move(shared), props->maxSize)) return CUDA_ERROR_UNKNOWN;
  *pool = from_wire<CUmemoryPool>(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Call call;
  if (call.failed()) return call.status();
  Pools& all = pools();
  PoolRecord* const record = all.table.find(pool);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  if (record->shared) {
    if (const CUresult result = reap_shared(call, *record->shared, true); result != CUDA_SUCCESS) return result;
  }
  {
    std::lock_guard lock(all.mutex);
    auto& [standard, current] = all.of[part_of_handle(to_wire(pool))];
    if (to_wire(pool) == standard) return CUDA_ERROR_INVALID_VALUE;
    if (to_wire(pool) == current) current = 0;  // the default one again
  }
  const CUresult result = wire::pool_destroy(call, to_wire(pool));
  if (result == CUDA_SUCCESS) all.table.remove(to_wire(pool));
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  Call call;
  if (call.failed()) return call.status();
  const PoolRecord* const record = pools().table.find(pool);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  if (record->shared) return reap_shared(call, *record->shared, false);
  return wire::pool_trim(call, to_wire(pool), keep);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (call.failed()) return call.status();
  const size_t bytes = attribute_bytes(attribute);
  if (!value || !bytes || !pools().table.find(pool)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t number = 0;
  std::memcpy(&number, value, bytes);  // little endian, as the wire
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return CUDA_ERROR_INVALID_VALUE;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (number) return CUDA_ERROR_INVALID_VALUE;  // a high-water mark can only be reset
      break;
    default:
      break;
  }
  if (SharedPool* const shared = pools().table.find(pool)->shared.get(); shared && shared_usage(*shared, attribute)) {
    reset_shared_usage(*shared, attribute);
    return CUDA_SUCCESS;
  }
  return wire::pool_set_attribute(call, to_wire(pool), attribute, number);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (call.failed()) return call.status();
  const size_t bytes = attribute_bytes(attribute);
  if (!value || !bytes || !pools().table.find(pool)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t number = 0;
  if (SharedPool* const shared = pools().table.find(pool)->shared.get()) {
    if (const auto usage = shared_usage(*shared, attribute)) {
      std::memcpy(value, &*usage, bytes);
      return CUDA_SUCCESS;
    }
  }
  const CUresult result = wire::pool_get_attribute(call, to_wire(pool), attribute, &number);
  if (result == CUDA_SUCCESS) std::memcpy(value, &number, bytes);
  return result;
}

// A device always reads and writes its own pools, and no other's.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  Call call;
  if (call.failed()) return call.status();
  if (!pools().table.find(pool) || !map || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_device(map[i].location.id);
    if (result != CUDA_SUCCESS) return result;
    const bool own = gpu_at(map[i].location.id).part == part_of_handle(to_wire(pool));
    if (own && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    if (own) continue;
    const bool access = map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const CUresult set = set_pool_access(call, *pools().table.find(pool), gpu_at(map[i].location.id), access);
    if (set != CUDA_SUCCESS) return set;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!flags || !location || !pools().table.find(pool)) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_device(location->id);
  if (result != CUDA_SUCCESS) return result;
  const bool own = gpu_at(location->id).part == part_of_handle(to_wire(pool));
  const bool access = own || has_pool_access(*pools().table.find(pool), gpu_at(location->id));
  *flags = access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : give_pool(pool, device, default_pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : give_pool(pool, device, current_pool);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : set_current(device, pool);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult result = check_pool_device(location, type);
  return result != CUDA_SUCCESS ? result : give_pool(pool, location->id, default_pool);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult result = check_pool_device(location, type);
  return result != CUDA_SUCCESS ? result : give_pool(pool, location->id, current_pool);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult result = check_pool_device(location, type);
  return result != CUDA_SUCCESS ? result : set_current(location->id, pool);
}

}  // extern "C"
