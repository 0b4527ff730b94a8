// Plain device memory.
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/freed_memory.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/managed.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/opened.h"
#include "guest-driver/libcuda/api/peer.h"
#include "guest-driver/libcuda/api/pool.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr size_t kPitch = 512;

// Memory of a context dies with it; only host and managed memory need the host's word, see managed.cc.
void forget_memory_state(Context* context) {
  const uint64_t gone = context->handle;
  AddressMap::get().remove_if([gone](const Range& range) {
    return range.context == gone && (range.kind == RangeKind::kDevice || range.kind == RangeKind::kGraph);
  });
}

CUresult allocate(CUdeviceptr* address, size_t bytes, const char* entry = __builtin_FUNCTION()) {
  static const bool hooked = (on_context_ended(forget_memory_state), true);
  static_cast<void>(hooked);
  Call call(entry);
  if (!call.require_context()) return call.status();
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = 0;
  CUresult result = check_unsafe(call);
  if (result == CUDA_SUCCESS) {
    result = with_room_made(call, bytes, [&] { return wire::memory_alloc(call, bytes, &base); });
  }
  if (result != CUDA_SUCCESS) return result;
  const Range made{.base = base, .bytes = bytes, .kind = RangeKind::kDevice, .context = call.context()};
  AddressMap::get().add(made);
  result = show_to_peers(made);
  if (result != CUDA_SUCCESS) {
    hide_from_peers(made);
    AddressMap::get().remove(base);
    wire::memory_free(call, base);
    return result;
  }
  *address = base;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) { return allocate(address, bytes); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!address || !pitch || !width || !height) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  size_t row = 0, bytes = 0;
  if (__builtin_add_overflow(width, kPitch - 1, &row)) return CUDA_ERROR_INVALID_VALUE;
  row &= ~(kPitch - 1);
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate(address, bytes);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  Call call;
  if (call.failed()) return call.status();
  if (!address) return check_unsafe(call);
  const auto range = AddressMap::get().find(address);
  if (!range || range->base != address) return CUDA_ERROR_INVALID_VALUE;
  if (const auto pool = kept_pool_of(*range)) {
    CUresult allowed = check_unsafe(call);
    if (allowed == CUDA_SUCCESS) allowed = check_may_wait();
    return allowed == CUDA_SUCCESS ? pool->free_now(*range) : allowed;
  }
  CUresult given = CUDA_SUCCESS;
  switch (range->kind) {
    case RangeKind::kDevice:
    case RangeKind::kPool:
    case RangeKind::kGraph:
      break;
    case RangeKind::kManaged:
      return range->owner ? CUDA_ERROR_INVALID_VALUE : free_managed(call, *range);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  call.go_to(gpu_of(*range));
  CUresult result = call.status();
  if (result == CUDA_SUCCESS) result = check_unsafe(call);
  if (result == CUDA_SUCCESS) result = check_may_wait();
  if (result == CUDA_SUCCESS && free_opened(call, *range, &given)) return given;
  if (SharedPool* const pool = shared_pool_of(*range); pool && result == CUDA_SUCCESS) {
    return free_shared_now(call, *pool, *range);
  }
  if (result == CUDA_SUCCESS) hide_from_peers(*range);
  if (result == CUDA_SUCCESS) result = wire::memory_free(call, address);
  // The address of a graph's memory stays known: the graph's next launch allocates it there again.
  if (result == CUDA_SUCCESS && range->kind != RangeKind::kGraph) AddressMap::get().forget(*range);
  return result;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call;
  if (!call.require_context()) return call.status();
  uint64_t left = 0, all = 0;
  give_back_freed();
  const CUresult result = wire::memory_info(call, &left, &all);
  if (result != CUDA_SUCCESS) return result;
  if (free) *free = ManagedSpace::get().left_of(left);
  if (total) *total = all;
  return CUDA_SUCCESS;
}

// It never waits, but libraries ask it whether they are inside a host function: GCC's libgomp does.
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  Call call;
  if (!call.require_context()) return call.status();
  if (const CUresult result = check_may_wait(); result != CUDA_SUCCESS) return result;
  if (!base && !bytes) return CUDA_SUCCESS;  // nothing is asked, of any address
  const auto range = range_around(address);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range->base;
  if (bytes) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
