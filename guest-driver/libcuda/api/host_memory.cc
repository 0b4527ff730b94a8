// Pinned, mapped and registered host memory.
#include "guest-driver/libcuda/api/host_memory.h"

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/registered_pages.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr unsigned kAllocFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Pinned memory goes with its context, as in CUDA; registered memory stays the program's.
void forget_host_memory_state(Context* context) {
  const uint64_t gone = context->handle;
  std::vector<uint64_t> blocks;
  AddressMap::get().remove_if([&](const Range& range) {
    const bool mine = range.kind == RangeKind::kHost && range.context == gone;
    if (mine) blocks.push_back(range.base);
    return mine;
  });
  for (const uint64_t block : blocks) static_cast<void>(host_blocks().release(block));
  context->gpu->memory->drop_spares();
}

// Work of any device may use the memory until it has ended.
CUresult wait_for_all_devices() {
  CUresult result = check_may_wait();
  for (CUdevice i = 0; i < gpu_count() && result == CUDA_SUCCESS; ++i) {
    VirtualGpu& gpu = gpu_at(i);
    if (gpu.lost || !any_context(gpu)) continue;
    Call call(gpu);
    result = wire::settle(call);
  }
  return result;
}

CUresult allocate(void** pointer, size_t bytes, unsigned flags, const char* entry = __builtin_FUNCTION()) {
  static const bool hooked = (on_context_ended(forget_host_memory_state), true);
  static_cast<void>(hooked);
  Call call(entry);
  if (!call.require_context()) return call.status();
  if (!pointer || (flags & ~kAllocFlags)) return CUDA_ERROR_INVALID_VALUE;
  *pointer = nullptr;
  if (!bytes) return CUDA_SUCCESS;
  SharedBlock block;
  CUresult result = check_unsafe(call);
  if (result == CUDA_SUCCESS) result = host_blocks().allocate(call.gpu(), bytes, &block);
  if (result != CUDA_SUCCESS) return result;
  AddressMap::get().add({.base = number(block.address),
                         .bytes = bytes,
                         .kind = RangeKind::kHost,
                         .flags = flags,
                         .context = call.context()});
  *pointer = block.address;
  return CUDA_SUCCESS;
}

CUresult register_range(const Call& call, void* pointer, size_t bytes, unsigned flags) {
  AddressMap& map = AddressMap::get();
  const uint64_t first = number(pointer);
  for (const uint64_t end : {first, first + bytes - 1}) {
    const auto known = map.find(end);
    if (known) {
      return known->kind == RangeKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                   : CUDA_ERROR_INVALID_VALUE;
    }
  }
  const bool read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
  const uint32_t region_flags = VGPU_REGION_DEVICE_VISIBLE | (read_only ? VGPU_REGION_READ_ONLY : 0);
  bool whole = false;
  const CUresult result = RegisteredPages::get().add(call.gpu(), first, bytes, region_flags, &whole);
  if (result == CUDA_SUCCESS) {
    map.add({.base = first,
             .bytes = bytes,
             .kind = RangeKind::kRegistered,
             .flags = flags,
             .context = call.context(),
             .in_pieces = !whole});
  }
  return result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) { return allocate(pointer, bytes, flags); }

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) { return allocate(pointer, bytes, 0); }

CUresult cuMemFreeHost(void* pointer) {
  Call call;
  if (call.failed()) return call.status();
  if (!pointer) return CUDA_SUCCESS;
  AddressMap& map = AddressMap::get();
  const auto range = map.find(number(pointer));
  if (!range || range->base != number(pointer) || range->kind != RangeKind::kHost || range->owner || range->pool) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult waited = wait_for_all_devices();
  if (waited == CUDA_ERROR_NOT_PERMITTED) return waited;
  if (!map.remove(range->base)) return CUDA_ERROR_INVALID_VALUE;
  if (waited == CUDA_SUCCESS) return host_blocks().release_idle(range->base);
  static_cast<void>(host_blocks().release(range->base));
  return waited;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!address || !pointer || flags) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(number(pointer));
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  switch (range->kind) {
    case RangeKind::kHost:
    case RangeKind::kRegistered:
      *address = number(pointer);  // one address for both
      return CUDA_SUCCESS;
    case RangeKind::kMapped:
      *address = range->base;  // as NVIDIA's driver answers, of device memory too
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!flags || !pointer) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(number(pointer));
  if (!range || (range->on_device() && range->kind != RangeKind::kMapped)) return CUDA_ERROR_INVALID_VALUE;
  // Always mapped: addressing is unified. Of what was asked for, NVIDIA's driver tells this much.
  const unsigned told = range->kind == RangeKind::kHost         ? CU_MEMHOSTALLOC_WRITECOMBINED
                        : range->kind == RangeKind::kRegistered ? CU_MEMHOSTREGISTER_PORTABLE
                                                                : 0;
  const unsigned always = range->kind == RangeKind::kMapped ? CU_MEMHOSTALLOC_PORTABLE : 0;
  *flags = (range->flags & told) | always | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!pointer || !bytes || (flags & ~kRegisterFlags) || number(pointer) + bytes < number(pointer)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_INVALID_VALUE;  // no other device's memory is here
  const CUresult allowed = check_unsafe(call);
  return allowed != CUDA_SUCCESS ? allowed : register_range(call, pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) {
  Call call;
  if (call.failed()) return call.status();
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  AddressMap& map = AddressMap::get();
  const auto range = map.find(number(pointer));
  if (!range) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (range->kind != RangeKind::kRegistered || range->base != number(pointer)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_unsafe(call);
  RegisteredPages& pages = RegisteredPages::get();
  if (result == CUDA_SUCCESS && pages.are_shared(range->base, range->bytes)) result = wait_for_all_devices();
  if (result == CUDA_SUCCESS) result = pages.remove(range->base, range->bytes);
  if (result == CUDA_SUCCESS) map.remove(range->base);
  return result;
}

}  // extern "C"
