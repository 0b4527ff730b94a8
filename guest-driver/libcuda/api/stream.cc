#include "guest-driver/libcuda/api/stream.h"

#include <algorithm>
#include <cstring>

#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/context_event.h"
#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/freed_memory.h"
#include "guest-driver/libcuda/api/green.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/core/thread.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kFirstId = 16;  // the ids below are those of default streams
std::atomic<uint64_t> next_id{kFirstId};

void forget_stream_state(Context* context) {
  streams().remove_if([context](const StreamRecord& stream) {
    if (stream.context == context) forget_capture(stream.handle);
    return stream.context == context;
  });
}

CUresult create(CUstream* stream, unsigned flags, int priority, const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!call.require_context()) return call.status();
  if (!stream || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) return CUDA_ERROR_INVALID_VALUE;
  const vgpu_device_info& device = call.gpu().info;
  priority = std::clamp(priority, device.greatest_priority, device.least_priority);
  auto record = std::make_unique<StreamRecord>();
  const SmRange sms = current_context()->sms;
  CUresult result = sms.count ? wire::stream_create_part(call, flags, priority, sms.first, sms.count, &record->handle)
                              : wire::stream_create(call, flags, priority, &record->handle);
  if (result == CUDA_SUCCESS) result = wait_as_context_does(call, current_context(), record->handle);
  if (result != CUDA_SUCCESS) return result;
  record->id = next_id.fetch_add(1, std::memory_order_relaxed);
  record->context = current_context();
  record->flags = flags;
  record->priority = priority;
  *stream = from_wire<CUstream>(record->handle);
  return streams().insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// A stream's record; nullptr and success for the default streams.
CUresult find_stream(CUstream stream, StreamRecord** record) {
  *record = nullptr;
  uint64_t handle = 0;
  const CUresult result = check_stream(stream, &handle);
  if (result == CUDA_SUCCESS && handle > VGPU_STREAM_PER_THREAD) *record = streams().find(handle);
  return result;
}

}  // namespace

bool require_context(Call& call, CUstream stream) {
  if (!call.failed() && call.context() == 0 && !this_thread().runs_callbacks) {
    const StreamRecord* const made = streams().find(stream);
    if (made && made->context->alive()) call.set_context(made->context->handle);
  }
  return call.require_context();
}

uint64_t stream_id(uint64_t wire_stream) {
  if (wire_stream == VGPU_STREAM_PER_THREAD) {
    static thread_local const uint64_t mine = next_id.fetch_add(1, std::memory_order_relaxed);
    return mine;
  }
  const StreamRecord* const record = wire_stream > VGPU_STREAM_PER_THREAD ? streams().find(wire_stream) : nullptr;
  return record ? record->id : uint64_t{VGPU_STREAM_LEGACY};
}

HandleTable<StreamRecord>& streams() {
  static HandleTable<StreamRecord>& table = *[] {
    on_context_ended(forget_stream_state);
    return new HandleTable<StreamRecord>;
  }();
  return table;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return create(stream, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  Call call;
  if (call.failed()) return call.status();
  StreamRecord* const record = streams().find(stream);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  give_back_freed_of_stream(record->handle);
  const CUresult result = wire::stream_destroy(call, record->handle);
  if (result != CUDA_SUCCESS) return result;
  forget_capture(record->handle);
  ManagedSpace::get().stream_ended(work_stream(call, record->handle));
  streams().remove(record->handle);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  CUresult result = check_stream(call, stream, &on);
  if (result == CUDA_SUCCESS && on <= VGPU_STREAM_LEGACY) result = check_captured(on);
  if (result == CUDA_SUCCESS) result = check_unsafe(call);
  if (result == CUDA_SUCCESS) result = check_may_wait();
  if (result != CUDA_SUCCESS) return result;
  const bandsaw::managed::WorkWait wait(managed_work(), work_stream(call, on));
  tell_synchronising();
  result = wire::stream_synchronize(call, on);
  if (result != CUDA_SUCCESS) return result;
  wait.succeeded();
  tell_synchronised();
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  CUresult result = check_stream(call, stream, &on);
  if (result == CUDA_SUCCESS && on <= VGPU_STREAM_LEGACY) result = check_captured(on);
  if (result == CUDA_SUCCESS) result = check_unsafe(call);
  if (result != CUDA_SUCCESS) return result;
  const bandsaw::managed::WorkWait wait(managed_work(), work_stream(call, on));
  result = wire::stream_query(call, on);
  if (result == CUDA_SUCCESS) wait.succeeded();
  return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!events().find(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result == CUDA_SUCCESS && flags) result = check_external(on);
  if (result == CUDA_SUCCESS && !call.is_here(to_wire(event))) {
    return wait_across(call, on, to_wire(event));
  }
  if (result == CUDA_SUCCESS) result = wire::stream_wait_event(call, on, to_wire(event), flags);
  if (result != CUDA_SUCCESS) return result;
  // That the event belongs to no capture, or to another one, is told by this call: only the host knows it.
  bool capturing = false;
  if (is_capturing(on, &capturing) != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return CUDA_SUCCESS;
  static_cast<void>(take_late_error(call));  // which a later call would tell, too
  return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  bool capturing = false;
  result = is_capturing(on, &capturing);
  if (result != CUDA_SUCCESS) return result;
  if (capturing) return invalidate_capture(call, on);
  return put_host_function(call, on, reinterpret_cast<uint64_t>(callback), data, VGPU_CALLBACK_STREAM);
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result == CUDA_SUCCESS) *priority = record ? record->priority : 0;
  return result;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result == CUDA_SUCCESS) *flags = record ? record->flags : unsigned{CU_STREAM_DEFAULT};
  return result;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result != CUDA_SUCCESS) return result;
  *id = stream_id(record ? record->handle : wire_stream(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result == CUDA_SUCCESS) *context = to_program(record ? record->context : current_context());
  return result;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* green) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!green) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result == CUDA_SUCCESS) *green = green_of(record ? record->context : current_context());
  return result;
}

CUresult cuStreamGetDevResource(CUstream stream, CUdevResource* resource, CUdevResourceType type) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result != CUDA_SUCCESS) return result;
  return cuCtxGetDevResource(to_program(record ? record->context : current_context()), resource, type);
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  if (!green) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuStreamGetCtx(stream, context);
  return result == CUDA_SUCCESS ? cuStreamGetGreenCtx(stream, green) : result;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  StreamRecord* record = nullptr;
  const CUresult result = find_stream(stream, &record);
  if (result == CUDA_SUCCESS) *device = record ? record->context->device : current_context()->device;
  return result;
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
  if (!known || !pointer) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result == CUDA_SUCCESS) result = refuse_captured(call, on);
  if (result == CUDA_SUCCESS) result = check_unsafe(call);
  if (result != CUDA_SUCCESS) return result;
  if (flags == CU_MEM_ATTACH_SINGLE && on <= VGPU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(pointer);
  if (!range || range->kind != RangeKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  if (bytes && (pointer != range->base || bytes != range->bytes)) return CUDA_ERROR_INVALID_VALUE;
  // Memory that stays with the program is everybody's at any time, so attachment restricts nothing.
  static_cast<void>(ManagedSpace::get().attach(pointer, work_stream(call, on), flags));
  return CUDA_SUCCESS;
}

}  // extern "C"
