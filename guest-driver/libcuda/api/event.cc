#include "guest-driver/libcuda/api/event.h"

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

void forget_event_state(Context* context) {
  const uint64_t gone = context->handle;
  events().remove_if([gone](const EventRecord& event) { return event.context == gone; });
}

// A call that is answered, and before which all that waits in the runner is executed (wire.toml: no `order`).
void await_earlier_calls(Call& call) {
  uint64_t bytes = 0;
  (void)wire::context_get_limit(call, CU_LIMIT_STACK_SIZE, &bytes);
}

}  // namespace

// A question about an event that nothing was recorded in succeeds, and tells it.
CUresult take_late_error(Call& call) {
  await_earlier_calls(call);
  uint64_t event = 0;
  const CUresult made = wire::event_create(call, CU_EVENT_DISABLE_TIMING, &event);
  if (made != CUDA_SUCCESS) return made;
  const CUresult late = wire::event_query(call, event);
  static_cast<void>(wire::event_destroy(call, event));
  return late;
}

HandleTable<EventRecord>& events() {
  static HandleTable<EventRecord>& table = *[] {
    on_context_ended(forget_event_state);
    return new HandleTable<EventRecord>;
  }();
  return table;
}

CUresult record_event(Call& call, CUevent event, CUstream stream, unsigned flags) {
  const EventRecord* const record = events().find(event);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result == CUDA_SUCCESS && !call.is_here(to_wire(event))) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && flags) result = check_external(on);
  if (result == CUDA_SUCCESS) result = wire::event_record(call, to_wire(event), on, flags);
  // Another process may wait for the event as soon as it hears of it: the record has to be on the device by then.
  if (result == CUDA_SUCCESS && (record->flags & CU_EVENT_INTERPROCESS)) await_earlier_calls(call);
  return result;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!event || (flags & ~kEventFlags)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS) {
    if (!(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
    if (!device_attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto record = std::make_unique<EventRecord>();
  const CUresult result = wire::event_create(call, flags, &record->handle);
  if (result != CUDA_SUCCESS) return result;
  record->context = call.context();
  record->flags = flags;
  *event = from_wire<CUevent>(record->handle);
  return events().insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuEventDestroy_v2(CUevent event) {
  Call call;
  if (call.failed()) return call.status();
  if (!events().find(event)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = wire::event_destroy(call, to_wire(event));
  if (result == CUDA_SUCCESS) events().remove(to_wire(event));
  return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  Call call;
  return require_context(call, stream) ? record_event(call, event, stream, 0) : call.status();
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  Call call;
  return require_context(call, stream) ? record_event(call, event, stream, flags) : call.status();
}

CUresult cuEventQuery(CUevent event) {
  Call call;
  if (call.failed()) return call.status();
  if (!events().find(event)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult allowed = check_unsafe_for(call, event);
  return allowed != CUDA_SUCCESS ? allowed : wire::event_query(call, to_wire(event));
}

CUresult cuEventSynchronize(CUevent event) {
  Call call;
  if (call.failed()) return call.status();
  if (!events().find(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = check_unsafe_for(call, event);
  if (result == CUDA_SUCCESS) result = check_may_wait();
  if (result != CUDA_SUCCESS) return result;
  tell_synchronising();
  result = wire::event_synchronize(call, to_wire(event));
  if (result == CUDA_SUCCESS) tell_synchronised();
  return result;
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  Call call;
  if (call.failed()) return call.status();
  if (!milliseconds) return CUDA_ERROR_INVALID_HANDLE;
  const EventRecord* const from = events().find(start);
  const EventRecord* const to = events().find(end);
  if (!from || !to || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
  return wire::event_elapsed(call, from->handle, to->handle, milliseconds);
}

}  // extern "C"
