// Managed memory, in one of two ways. It moves between the program's pages and the device's memory
// (managed_space.h); prefetching moves it, advice is checked and remembered. Or it is memory of the program that the
// device uses in place: where it may not move (managed_mode.h), and what the device has no room for. There
// prefetching, too, has nothing to do.
#include "guest-driver/libcuda/api/managed.h"

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

void drop_block(uint64_t address) {
  // Fails only when the host is gone, and then there is nothing to give back.
  static_cast<void>(host_blocks().release(address));
}

void forget_managed_state(Context* context) {
  const uint64_t gone = context->handle;
  std::vector<Range> ranges;
  AddressMap::get().remove_if([&](const Range& range) {
    const bool mine = range.kind == RangeKind::kManaged && range.context == gone && !range.owner;
    if (mine) forget_advice(range);
    if (mine && !ManagedSpace::get().has(range.base)) ranges.push_back(range);
    return mine;
  });
  ManagedSpace::get().context_ended(gone);
  if (ranges.empty()) return;
  Call call;
  call.set_context(gone);
  for (const Range& range : ranges) {
    range.uncounted ? wire::settle(call) : wire::managed_remove(call, range.base);
    drop_block(range.base);
  }
}

}  // namespace

CUresult free_managed(Call& call, const Range& range) {
  forget_advice(range);
  call.set_context(range.context);
  CUresult result = check_may_wait();
  if (result == CUDA_SUCCESS && ManagedSpace::get().has(range.base)) {
    AddressMap::get().forget(range);
    return ManagedSpace::get().release(call, range.base);
  }
  if (result == CUDA_SUCCESS) result = range.uncounted ? wire::settle(call) : wire::managed_remove(call, range.base);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().remove(range.base);
  drop_block(range.base);
  return CUDA_SUCCESS;
}

CUresult allocate_unowned(Call& call, uint64_t bytes, uint64_t* base) {
  if (managed_memory_moves(call.gpu())) {
    const CUresult result = ManagedSpace::get().allocate(call, bytes, CU_MEM_ATTACH_GLOBAL, 0, base);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  SharedBlock block;
  const CUresult result = host_blocks().allocate(call.gpu(), bytes, &block);
  if (result == CUDA_SUCCESS) *base = reinterpret_cast<uint64_t>(block.address);
  return result;
}

void begin_unowned(uint64_t base, size_t bytes, const CUmemLocation& preferred) {
  if (ManagedSpace::get().has(base)) {
    static_cast<void>(ManagedSpace::get().attach(base, {}, CU_MEM_ATTACH_GLOBAL));
    ManagedSpace::get().prefer_host(base, false);
  }
  if (preferred.type == CU_MEM_LOCATION_TYPE_NONE) return;
  static_cast<void>(advise(base, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, preferred));  // checked with the pool
}

CUresult release_unowned(uint64_t base) {
  if (!ManagedSpace::get().has(base)) return host_blocks().release_idle(base);
  Call call;
  return ManagedSpace::get().release(call, base, true);
}

CUresult prefetch(Call& call, CUdeviceptr address, size_t bytes, CUmemLocation location, uint64_t stream) {
  CUresult result = check_location(location);
  if (result == CUDA_SUCCESS) result = check_managed(address, bytes);
  bool capturing = false;
  if (result == CUDA_SUCCESS) result = is_capturing(stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  const bool to_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!capturing && !ManagedSpace::get().prefetch(call, {address, bytes}, to_device, stream, &result))
    result = CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  prefetched_to(address, bytes, location);
  return CUDA_SUCCESS;
}

namespace {

struct Batch {
  const CUdeviceptr* addresses;
  const size_t* sizes;
  size_t count;
};

CUresult check_batch(Call& call, const Batch& batch, unsigned long long flags, CUstream stream, uint64_t* on) {
  if (!require_context(call, stream)) return call.status();
  if (!batch.addresses || !batch.sizes || !batch.count || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_work_stream(call, stream, on);
  if (result == CUDA_SUCCESS && *on <= VGPU_STREAM_LEGACY) result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch.count && result == CUDA_SUCCESS; ++i) {
    result = check_managed(batch.addresses[i], batch.sizes[i]);
  }
  return result;
}

// locations[k] is for those from firsts[k] up to the next location's first one.
CUresult check_locations(const Batch& batch, const CUmemLocation* locations, const size_t* firsts, size_t count) {
  if (!locations || !firsts || !count || count > batch.count || firsts[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < count; ++k) {
    if (firsts[k] >= batch.count || (k && firsts[k] <= firsts[k - 1])) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_location(locations[k]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult prefetch_batch(Call& call, const Batch& batch, const CUmemLocation* locations, const size_t* firsts,
                        size_t count, uint64_t stream) {
  if (const CUresult result = check_locations(batch, locations, firsts, count); result != CUDA_SUCCESS) return result;
  size_t k = 0;
  for (size_t i = 0; i < batch.count; ++i) {
    if (k + 1 < count && firsts[k + 1] == i) ++k;
    const CUresult result = prefetch(call, batch.addresses[i], batch.sizes[i], locations[k], stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// While something is captured nothing moves, and what is discarded keeps its bytes.
CUresult discard_batch(Call& call, const Batch& batch, uint64_t stream) {
  bool capturing = false;
  CUresult result = is_capturing(stream, &capturing);
  for (size_t i = 0; i < batch.count && result == CUDA_SUCCESS && !capturing; ++i) {
    result = ManagedSpace::get().discard(call, {batch.addresses[i], batch.sizes[i]});
  }
  return result;
}

CUresult remember(const Call& call, uint64_t base, size_t bytes, unsigned flags, bool uncounted, CUdeviceptr* address) {
  AddressMap::get().add({.base = base,
                         .bytes = bytes,
                         .kind = RangeKind::kManaged,
                         .sync_memops = true,
                         .flags = flags,
                         .context = call.context(),
                         .uncounted = uncounted});
  *address = base;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  static const bool hooked = (on_context_ended(forget_managed_state), true);
  static_cast<void>(hooked);
  Call call;
  if (!call.require_context()) return call.status();
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_unsafe(call);
  if (result != CUDA_SUCCESS) return result;
  uint64_t moving = 0;
  result = managed_memory_moves(call.gpu()) ? ManagedSpace::get().allocate(call, bytes, flags, call.context(), &moving)
                                            : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) return remember(call, moving, bytes, flags, false, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  // No room on the device, then: kernels use it in the program's memory, and it takes none of the device's.
  const bool uncounted = managed_memory_moves(call.gpu());
  SharedBlock block;
  result = host_blocks().allocate(call.gpu(), bytes, &block);
  if (result != CUDA_SUCCESS) return result;
  const auto base = reinterpret_cast<uint64_t>(block.address);
  if (!uncounted) result = wire::managed_add(call, base, bytes);
  if (result != CUDA_SUCCESS) {
    drop_block(base);
    return result;
  }
  return remember(call, base, bytes, flags, uncounted, address);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                               CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  const CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(call, address, bytes, location, on);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* locations,
                                 size_t* firsts, size_t location_count, unsigned long long flags, CUstream stream) {
  Call call;
  uint64_t on = 0;
  const Batch batch{addresses, sizes, count};
  const CUresult result = check_batch(call, batch, flags, stream, &on);
  return result == CUDA_SUCCESS ? prefetch_batch(call, batch, locations, firsts, location_count, on) : result;
}

// What was discarded may have any value until it is written, so nobody copies it meanwhile.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream stream) {
  Call call;
  uint64_t on = 0;
  const Batch batch{addresses, sizes, count};
  const CUresult result = check_batch(call, batch, flags, stream, &on);
  return result == CUDA_SUCCESS ? discard_batch(call, batch, on) : result;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                           CUmemLocation* locations, size_t* firsts, size_t location_count,
                                           unsigned long long flags, CUstream stream) {
  Call call;
  uint64_t on = 0;
  const Batch batch{addresses, sizes, count};
  CUresult result = check_batch(call, batch, flags, stream, &on);
  if (result == CUDA_SUCCESS) result = check_locations(batch, locations, firsts, location_count);
  if (result == CUDA_SUCCESS) result = discard_batch(call, batch, on);
  return result == CUDA_SUCCESS ? prefetch_batch(call, batch, locations, firsts, location_count, on) : result;
}

}  // extern "C"
