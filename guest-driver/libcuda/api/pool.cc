// Stream-ordered memory: pools, and allocation and freeing in stream order.
#include <map>
#include <mutex>

#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/freed_memory.h"
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
  struct OfPlace {
    uint64_t standard = 0;  // the default pool, once somebody asked
    uint64_t current = 0;   // 0: the default one
  };
  std::mutex mutex;
  std::map<PoolPlace, OfPlace> of;  // guarded by mutex
};

Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

// A device's default pool is the host's own.
CUresult make_default_pool(const PoolPlace& place, uint64_t* handle) {
  if (place.on_device()) {
    Call call(gpu_at(place.id));
    return wire::pool_default(call, handle);
  }
  Call call;
  return call.failed() ? call.status() : wire::pool_create(call, vgpu_pool_props{}, handle);
}

CUresult default_pool(const PoolPlace& place, uint64_t* pool) {
  Pools& all = pools();
  std::lock_guard lock(all.mutex);
  uint64_t& standard = all.of[place].standard;
  if (!standard) {
    uint64_t made = 0;
    const CUresult result = make_default_pool(place, &made);
    if (result != CUDA_SUCCESS) return result;
    if (!remember_pool({.handle = made, .place = place})) return CUDA_ERROR_UNKNOWN;
    standard = made;
  }
  *pool = standard;
  return CUDA_SUCCESS;
}

CUresult current_pool(const PoolPlace& place, uint64_t* pool) {
  {
    Pools& all = pools();
    std::lock_guard lock(all.mutex);
    if (const uint64_t current = all.of[place].current) {
      *pool = current;
      return CUDA_SUCCESS;
    }
  }
  return default_pool(place, pool);
}

PoolPlace place_on(CUdevice device) {
  PoolPlace place;
  place.id = device;
  return place;
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

CUresult refuse_in_graph() {
  log_unsupported("host or managed memory of a pool in a graph");
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

CUresult allocate_at_host(Call& call, uint64_t pool, uint64_t bytes, uint64_t stream, uint64_t* base) {
  CUresult result = wire::memory_alloc_async(call, pool, bytes, stream, base);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && give_back_freed()) {
    result = wire::memory_alloc_async(call, pool, bytes, stream, base);
  }
  return result != CUDA_SUCCESS ? result : check_apart(call, *base, bytes, stream);
}

CUresult allocate(CUdeviceptr* address, size_t bytes, uint64_t pool, CUstream stream,
                  const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0, base = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  *address = 0;
  if (!bytes) return CUDA_SUCCESS;
  bool capturing = false;
  result = is_capturing(on, &capturing);
  if (result == CUDA_SUCCESS && !capturing) result = check_unsafe(call);
  PoolRecord* const record = pools().table.find(pool);
  if (result == CUDA_SUCCESS && record && record->kept) {
    return capturing ? refuse_in_graph() : record->kept->allocate(call, bytes, on, address);
  }
  if (result == CUDA_SUCCESS && !call.is_here(pool))
    result = refuse_other_device("memory of one device's pool in the order of another's stream");
  if (result == CUDA_SUCCESS && record && record->shared) {
    return capturing ? CUDA_ERROR_NOT_SUPPORTED : allocate_shared(call, *record, bytes, address);
  }
  if (result == CUDA_SUCCESS && !capturing) base = allocate_freed(call, pool, bytes, on);
  if (result == CUDA_SUCCESS && base == 0) result = allocate_at_host(call, pool, bytes, on, &base);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().add({.base = base,
                         .bytes = bytes,
                         .kind = capturing ? RangeKind::kGraph : RangeKind::kPool,
                         .context = call.context(),
                         .pool = pool});
  *address = base;
  return CUDA_SUCCESS;
}

CUresult give_pool(CUmemoryPool* pool, const PoolPlace& place, CUresult (*which)(const PoolPlace&, uint64_t*)) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = which(place, &handle);
  if (result == CUDA_SUCCESS) *pool = from_wire<CUmemoryPool>(handle);
  return result;
}

CUresult set_current(const PoolPlace& place, CUmemoryPool pool) {
  const PoolRecord* const record = pools().table.find(pool);
  if (!record || record->place != place) return CUDA_ERROR_INVALID_VALUE;
  if (is_imported(*record)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pools().mutex);
  pools().of[place].current = to_wire(pool);
  return CUDA_SUCCESS;
}

// Memory of pools that libcuda keeps is host memory or managed memory. Host memory of no node, and managed memory,
// cannot be handed to other processes; managed memory has no largest size.
CUresult check_kept_props(const CUmemPoolProps& props, const PoolPlace& place) {
  const bool never_shared = place.managed() || place.where == CU_MEM_LOCATION_TYPE_HOST;
  if (props.usage || (props.handleTypes && never_shared) || (props.maxSize && place.managed())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult check_props(const CUmemPoolProps* props, PoolPlace* place) {
  if (const CUresult result = find_place(&props->location, props->allocType, place); result != CUDA_SUCCESS) {
    return result;
  }
  const CUresult result = place->on_device() ? CUDA_SUCCESS : check_kept_props(*props, *place);
  if (result != CUDA_SUCCESS || !(props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) return result;
  log_unsupported("memory pools that are exported by other handles than descriptors");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

HandleTable<PoolRecord>& pool_table() { return pools().table; }

bool is_imported(const PoolRecord& pool) {
  const PoolFile* const file = pool.kept ? pool.kept->file() : nullptr;
  return file ? file->imported() : pool.shared && pool.shared->imported;
}

bool remember_pool(PoolRecord pool) {
  if (!pool.place.on_device() && !pool.kept) pool.kept = make_kept_pool(pool.handle, pool.place, pool.max_bytes);
  return pools().table.insert(std::make_unique<PoolRecord>(std::move(pool))) != nullptr;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  uint64_t pool = 0;
  const CUresult result = current_pool(place_on(gpu_of_stream(stream).ordinal), &pool);
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
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (!address) return CUDA_SUCCESS;
  const auto range = AddressMap::get().find(address);
  if (!range || range->base != address) return CUDA_ERROR_INVALID_VALUE;
  const auto kept = kept_pool_of(*range);
  if (!kept && range->kind > RangeKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  bool capturing = false;
  result = is_capturing(on, &capturing);
  // A graph frees what a graph has allocated.
  if (capturing && !kept && range->kind != RangeKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  if (kept && result == CUDA_SUCCESS) return capturing ? refuse_in_graph() : kept->free(call, *range, on);
  if (SharedPool* const shared = shared_pool_of(*range); shared && result == CUDA_SUCCESS) {
    if (&gpu_of(*range) != &call.gpu()) return refuse_other_device("a shared pool's memory freed on another device");
    return free_shared(call, *shared, *range, on);
  }
  if (result == CUDA_SUCCESS && &gpu_of(*range) != &call.gpu()) {
    result = do_across(call, on, gpu_of(*range), [address](Call& there, uint64_t stream_there) {
      return wire::memory_free_async(there, address, stream_there);
    });
  } else if (result == CUDA_SUCCESS) {
    result = capturing                          ? wire::memory_free_async(call, address, on)
             : range->kind == RangeKind::kGraph ? wire::graph_memory_free(call, address, on)
                                                : free_in_order(call, *range, on);
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
  PoolPlace place;
  CUresult result = check_props(props, &place);
  if (result != CUDA_SUCCESS) return result;
  std::unique_ptr<SharedPool> shared;
  std::unique_ptr<PoolFile> file;
  if (props->handleTypes && !place.on_device()) {
    if (!(file = PoolFile::make(place.id, props->maxSize))) return CUDA_ERROR_OUT_OF_MEMORY;
  } else if (props->handleTypes) {
    if (!can_share_memory()) return CUDA_ERROR_NOT_SUPPORTED;
    if (!(shared = make_shared_pool())) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  uint64_t handle = 0;
  if (place.on_device()) call.go_to(gpu_at(place.id));
  result = wire::pool_create(call, vgpu_pool_props{place.on_device() ? props->maxSize : 0, 0}, &handle);
  if (result != CUDA_SUCCESS) return result;
  PoolRecord made{.handle = handle, .place = place, .shared = std::move(shared), .max_bytes = props->maxSize};
  made.handle_types = props->handleTypes;
  if (file) made.kept = make_kept_pool(handle, place, props->maxSize, std::move(file));
  if (!remember_pool(std::move(made))) return CUDA_ERROR_UNKNOWN;
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
    auto& [standard, current] = all.of[record->place];
    if (to_wire(pool) == standard) return CUDA_ERROR_INVALID_VALUE;
    if (to_wire(pool) == current) current = 0;  // the default one again
  }
  give_back_freed();
  if (record->kept) abandon_kept_pool(to_wire(pool));
  const CUresult result = wire::pool_destroy(call, to_wire(pool));
  if (result == CUDA_SUCCESS) all.table.remove(to_wire(pool));
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  Call call;
  if (call.failed()) return call.status();
  const PoolRecord* const record = pools().table.find(pool);
  if (!record) return CUDA_ERROR_INVALID_VALUE;
  if (record->kept) return record->kept->trim(keep), CUDA_SUCCESS;
  if (record->shared) return reap_shared(call, *record->shared, false);
  give_back_freed();
  return wire::pool_trim(call, to_wire(pool), keep);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : give_pool(pool, place_on(device), default_pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : give_pool(pool, place_on(device), current_pool);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : set_current(place_on(device), pool);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  PoolPlace place;
  const CUresult result = find_place(location, type, &place);
  return result != CUDA_SUCCESS ? result : give_pool(pool, place, default_pool);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  PoolPlace place;
  const CUresult result = find_place(location, type, &place);
  return result != CUDA_SUCCESS ? result : give_pool(pool, place, current_pool);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  PoolPlace place;
  const CUresult result = find_place(location, type, &place);
  return result != CUDA_SUCCESS ? result : set_current(place, pool);
}

}  // extern "C"
