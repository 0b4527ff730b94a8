// Pools that other processes and devices use: a descriptor names the pool, and a pointer's data one allocation of it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/opened.h"
#include "guest-driver/libcuda/api/peer.h"
#include "guest-driver/libcuda/api/pool.h"
#include "guest-driver/libcuda/api/pool_file.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/token_file.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/numa.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct PoolToken {
  static constexpr uint64_t kMagic = 0x316c6f6f77617362;  // "bsawool1"
  uint64_t magic = kMagic;
  PoolId id{};
};

// The content of CUmemPoolPtrExportData.
struct PointerToken {
  SharedMemoryToken memory;
  PoolId pool{};
};
static_assert(sizeof(PointerToken) <= sizeof(CUmemPoolPtrExportData));

// The same of a pool of host memory.
struct HostPointerToken {
  static constexpr uint64_t kMagic = 0x31746e6968776173;  // "sawhint1"
  uint64_t magic = kMagic;
  FileRange range;
  uint64_t bytes = 0;  // the program's
};
static_assert(sizeof(HostPointerToken) <= sizeof(CUmemPoolPtrExportData));

// Nothing: it is no pool of host memory.
std::optional<CUresult> import_host_pool(Call& call, int descriptor, CUmemoryPool* pool) {
  PoolRecord made;
  int node = kAnyNode;
  auto file = PoolFile::import(descriptor, &node);
  if (!file) return std::nullopt;
  made.place.where = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  made.place.id = std::max(node, 0);
  const CUresult result = wire::pool_create(call, vgpu_pool_props{}, &made.handle);
  if (result != CUDA_SUCCESS) return result;
  *pool = from_wire<CUmemoryPool>(made.handle);
  made.kept = make_kept_pool(made.handle, made.place, 0, std::move(file));
  return remember_pool(std::move(made)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// False: it is no memory of such a pool of this process.
bool export_host_pointer(const Range& range, CUmemPoolPtrExportData* data) {
  const auto pool = kept_pool_of(range);
  PoolFile* const file = pool ? pool->file() : nullptr;
  const auto there = file && !file->imported() ? file->range_of(range.base) : std::nullopt;
  if (!there) return false;
  HostPointerToken token;
  token.range = *there;
  token.bytes = range.bytes;
  std::memset(data, 0, sizeof(*data));
  std::memcpy(data, &token, sizeof(token));
  return true;
}

CUresult import_host_pointer(Call& call, KeptPool& pool, const CUmemPoolPtrExportData& data, CUdeviceptr* address) {
  HostPointerToken token;
  std::memcpy(static_cast<void*>(&token), &data, sizeof(token));
  if (token.magic != HostPointerToken::kMagic) return CUDA_ERROR_INVALID_VALUE;
  return pool.map(call, token.range, token.bytes, address);
}

CUresult check_pool_handle(CUmemAllocationHandleType type, unsigned long long flags) {
  if (type == CU_MEM_HANDLE_TYPE_NONE || flags) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_SUCCESS;
  log_unsupported("shareable handles of pools of this kind");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// With the pool's mutex held.
void count_freed(SharedPool& pool, uint64_t bytes) { pool.reserved -= std::min(pool.reserved, bytes); }

// Counts against the pool's own limit first: who asks at the same time does not get past it.
CUresult take(Call& call, SharedPool& pool, uint64_t max_bytes, uint64_t bytes, uint64_t* base) {
  {
    std::lock_guard lock(pool.mutex);
    if (max_bytes && (bytes > max_bytes || pool.reserved > max_bytes - bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    pool.reserved += bytes;
  }
  const CUresult result = wire::memory_alloc(call, bytes, base);
  if (result == CUDA_SUCCESS) return result;
  std::lock_guard lock(pool.mutex);
  count_freed(pool, bytes);
  return result;
}

// What a pool's own process has allocated, or another's that is mapped here.
CUresult give_back(Call& call, SharedPool& pool, uint64_t base) {
  if (!pool.imported) {
    for (int i = 0; i < gpu_count(); ++i) hide_on(gpu_at(i), {.base = base});
    return wire::memory_free(call, base);
  }
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  free_opened(call, {.base = base}, &result);
  return result;
}

}  // namespace

CUresult set_pool_access(Call& call, PoolRecord& pool, VirtualGpu& gpu, bool access) {
  if (!pool.shared && !access) return CUDA_SUCCESS;
  VirtualGpu* const owner = gpu_of_part(part_of_handle(pool.handle));
  if (!owner || (access && !can_reach(gpu, *owner))) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool.shared) {
    uint64_t used = 0;
    const CUresult result = wire::pool_get_attribute(call, pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    if (result != CUDA_SUCCESS) return result;
    if (used) {
      log_unsupported("access to a pool for another device while something of it is allocated");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!(pool.shared = make_shared_pool())) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  const uint32_t bit = 1u << gpu.part;
  {
    std::lock_guard lock(pool.shared->mutex);
    pool.shared->peers = access ? pool.shared->peers | bit : pool.shared->peers & ~bit;
  }
  CUresult result = CUDA_SUCCESS;
  for (const Range& range : AddressMap::get().select(
           [&](const Range& one) { return one.kind == RangeKind::kPool && one.pool == pool.handle; })) {
    if (!access) hide_on(gpu, range);
    if (access && result == CUDA_SUCCESS) result = show_on(gpu, range);
  }
  return result;
}

bool has_pool_access(PoolRecord& pool, const VirtualGpu& gpu) {
  if (!pool.shared) return false;
  std::lock_guard lock(pool.shared->mutex);
  return pool.shared->peers & 1u << gpu.part;
}

SharedPool* shared_pool_of(const Range& range) {
  if (range.kind != RangeKind::kPool) return nullptr;
  PoolRecord* const pool = pool_table().find(range.pool);
  return pool ? pool->shared.get() : nullptr;
}

std::unique_ptr<SharedPool> make_shared_pool() {
  auto made = std::make_unique<SharedPool>();
  const auto bytes = static_cast<ssize_t>(made->id.size());
  return getrandom(made->id.data(), made->id.size(), 0) == bytes ? std::move(made) : nullptr;
}

CUresult allocate_shared(Call& call, PoolRecord& pool, uint64_t bytes, CUdeviceptr* address) {
  SharedPool& shared = *pool.shared;
  if (shared.imported) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = reap_shared(call, shared, false);
  uint64_t base = 0;
  if (result == CUDA_SUCCESS) result = take(call, shared, pool.max_bytes, bytes, &base);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && reap_shared(call, shared, true) == CUDA_SUCCESS) {
    result = take(call, shared, pool.max_bytes, bytes, &base);
  }
  if (result != CUDA_SUCCESS) return result;
  const Range made{
      .base = base, .bytes = bytes, .kind = RangeKind::kPool, .context = call.context(), .pool = pool.handle};
  AddressMap::get().add(made);
  for (int i = 0; i < gpu_count() && result == CUDA_SUCCESS; ++i) {
    if (has_pool_access(pool, gpu_at(i))) result = show_on(gpu_at(i), made);
  }
  if (result != CUDA_SUCCESS) {
    AddressMap::get().remove(base);
    give_back(call, shared, base);
    std::lock_guard lock(shared.mutex);
    count_freed(shared, bytes);
    return result;
  }
  *address = base;
  std::lock_guard lock(shared.mutex);
  shared.used += bytes;
  shared.most_used = std::max(shared.most_used, shared.used);
  shared.most_reserved = std::max(shared.most_reserved, shared.reserved);
  return CUDA_SUCCESS;
}

CUresult free_shared(Call& call, SharedPool& pool, const Range& range, uint64_t stream) {
  SharedPool::Freed freed{range.base, range.bytes, 0};
  CUresult result = wire::event_create(call, CU_EVENT_DISABLE_TIMING, &freed.event);
  if (result == CUDA_SUCCESS) result = wire::event_record(call, freed.event, stream, 0);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().forget(range);
  {
    std::lock_guard lock(pool.mutex);
    pool.used -= std::min(pool.used, range.bytes);
    pool.freed.push_back(freed);
  }
  return reap_shared(call, pool, false);
}

CUresult free_shared_now(Call& call, SharedPool& pool, const Range& range) {
  AddressMap::get().forget(range);
  {
    std::lock_guard lock(pool.mutex);
    pool.used -= std::min(pool.used, range.bytes);
    count_freed(pool, range.bytes);
  }
  return give_back(call, pool, range.base);
}

CUresult reap_shared(Call& call, SharedPool& pool, bool wait) {
  std::lock_guard lock(pool.mutex);
  CUresult result = CUDA_SUCCESS;
  std::erase_if(pool.freed, [&](const SharedPool::Freed& freed) {
    const CUresult done = wait ? wire::event_synchronize(call, freed.event) : wire::event_query(call, freed.event);
    if (done == CUDA_ERROR_NOT_READY) return false;
    wire::event_destroy(call, freed.event);
    const CUresult given = give_back(call, pool, freed.base);
    if (result == CUDA_SUCCESS) result = given;
    count_freed(pool, freed.bytes);
    return true;
  });
  return result;
}

std::optional<uint64_t> shared_usage(SharedPool& pool, CUmemPool_attribute attribute) {
  std::lock_guard lock(pool.mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return pool.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return pool.most_reserved;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return pool.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return pool.most_used;
    default:
      return std::nullopt;
  }
}

void reset_shared_usage(SharedPool& pool, CUmemPool_attribute attribute) {
  std::lock_guard lock(pool.mutex);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) pool.most_reserved = pool.reserved;
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool.most_used = pool.used;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemPoolExportToShareableHandle(void* handle, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  if (const CUresult state = health(); state != CUDA_SUCCESS) return state;
  const PoolRecord* const record = pool_table().find(pool);
  const PoolFile* const of_host = record && record->kept ? record->kept->file() : nullptr;
  if (!handle || !record || is_imported(*record) || (!of_host && !record->shared)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_pool_handle(type, flags); result != CUDA_SUCCESS) return result;
  if (of_host) {
    *static_cast<int*>(handle) = of_host->share();
    return *static_cast<int*>(handle) < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
  }
  PoolToken token;
  token.id = record->shared->id;
  const int file = make_token_file("bandsaw-pool", token);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = file;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_pool_handle(type, flags); result != CUDA_SUCCESS) return result;
  const int file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (auto of_host = import_host_pool(call, file, pool)) return *of_host;
  PoolToken token;
  if (!can_share_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!read_token_file(file, &token)) return CUDA_ERROR_INVALID_VALUE;
  auto shared = std::make_unique<SharedPool>();
  shared->id = token.id;
  shared->imported = true;
  uint64_t made = 0;  // stands for the pool, and stays empty
  if (const CUresult result = wire::pool_create(call, vgpu_pool_props{}, &made); result != CUDA_SUCCESS) return result;
  *pool = from_wire<CUmemoryPool>(made);
  PoolPlace place;
  place.id = call.gpu().ordinal;
  return remember_pool({.handle = made, .place = place, .shared = std::move(shared)}) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_UNKNOWN;
}

// Threads without a context call it too: Python's, that hand objects over to other processes.
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  Call call;
  if (call.failed()) return call.status();
  const auto range = AddressMap::get().find(address);
  if (data && range && range->base == address && export_host_pointer(*range, data)) return CUDA_SUCCESS;
  const SharedPool* const pool = range ? shared_pool_of(*range) : nullptr;
  if (!data || !pool || pool->imported || range->base != address) return CUDA_ERROR_INVALID_VALUE;
  call.go_to(gpu_of(*range));
  PointerToken token;
  token.pool = pool->id;
  token.memory.length = range->bytes;
  const CUresult result =
      wire::memory_export(call, 0, address, &token.memory.key, &token.memory.bytes, &token.memory.offset);
  if (result != CUDA_SUCCESS) return result;
  std::memset(data, 0, sizeof(*data));
  std::memcpy(data, &token, sizeof(token));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool, CUmemPoolPtrExportData* data) {
  Call call;
  if (call.failed()) return call.status();
  const PoolRecord* const record = pool_table().find(pool);
  if (address && data && record && record->kept) return import_host_pointer(call, *record->kept, *data, address);
  if (!call.require_context()) return call.status();
  if (!address || !data || !record || !record->shared || !record->shared->imported) return CUDA_ERROR_INVALID_VALUE;
  PointerToken token;
  std::memcpy(static_cast<void*>(&token), data, sizeof(token));
  if (token.memory.magic != SharedMemoryToken::kMagic || token.pool != record->shared->id) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OpenedMemory opened;
  if (const CUresult result = import_opened(call, token.memory, &opened); result != CUDA_SUCCESS) return result;
  *address = opened.base + token.memory.offset;
  note_opened({.base = *address,
               .bytes = token.memory.length,
               .kind = RangeKind::kPool,
               .context = call.context(),
               .pool = record->handle},
              opened);
  return CUDA_SUCCESS;
}

}  // extern "C"
