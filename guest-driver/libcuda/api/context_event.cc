// A context's work is that of its streams. One stream beside them gathers it: it waits for an event of each, and the
// program's event is recorded there. The other way round all streams wait for the program's event, and streams that are
// made later for one that follows it.
#include "guest-driver/libcuda/api/context_event.h"

#include <map>
#include <vector>

#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Objects of ours on the host; they go with their context.
struct Gatherer {
  uint64_t stream = 0;
  uint64_t one = 0;     // recorded on each stream in turn
  uint64_t waited = 0;  // recorded on `stream` after what the context waits for; 0: it waits for nothing
};

struct Gatherers {
  std::mutex mutex;
  std::map<uint64_t, Gatherer> of;  // by the context's id: green contexts have the primary one's handle
  std::atomic<int> waiting{0};      // contexts with `waited`
};

void forget_gatherer(Context* context);

Gatherers& gatherers() {
  static Gatherers& all = *[] {
    on_context_ended(forget_gatherer);
    return new Gatherers;
  }();
  return all;
}

void forget_gatherer(Context* context) {
  Gatherers& all = gatherers();
  std::lock_guard lock(all.mutex);
  const auto found = all.of.find(context->id);
  if (found == all.of.end()) return;
  if (found->second.waited) all.waiting.fetch_sub(1);
  all.of.erase(found);
}

// Made at first use. Called with the mutex held.
CUresult gatherer_of(Call& call, const Context* context, Gatherer** gatherer) {
  Gatherer& found = gatherers().of[context->id];
  *gatherer = &found;
  CUresult result = CUDA_SUCCESS;
  if (!found.stream) result = wire::stream_create(call, CU_STREAM_NON_BLOCKING, 0, &found.stream);
  if (result == CUDA_SUCCESS && !found.one) result = wire::event_create(call, CU_EVENT_DISABLE_TIMING, &found.one);
  return result;
}

// The legacy stream stands for all that synchronise with it: those of threads, and created ones that block.
std::vector<uint64_t> streams_of(const Context* context) {
  std::vector<uint64_t> found{VGPU_STREAM_LEGACY};
  const auto mine = [context](const Context* other) {  // the primary one's work is that of its green contexts as well
    return other == context || (!context->sms.count && other && other->handle == context->handle);
  };
  streams().for_each([&](const StreamRecord& stream) {
    if (mine(stream.context) && (stream.flags & CU_STREAM_NON_BLOCKING)) found.push_back(stream.handle);
  });
  return found;
}

CUresult find_context(Call& call, CUcontext context, CUevent event, Context** found) {
  if (call.failed()) return call.status();
  *found = from_program(context);
  if (!context || !*found || !(*found)->alive()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!events().find(event)) return CUDA_ERROR_INVALID_HANDLE;
  call.set_context((*found)->handle);
  return CUDA_SUCCESS;
}

// A stream that captures takes no part, and its capture is then invalid.
CUresult refuse_captures(Call& call, const Context* context) {
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  streams().for_each([&](const StreamRecord& stream) {
    bool capturing = false;
    if (stream.context != context || is_capturing(stream.handle, &capturing) != CUDA_SUCCESS || !capturing) return;
    invalidate_capture(call, stream.handle);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  });
  return result;
}

}  // namespace

CUresult wait_as_context_does(Call& call, const Context* context, uint64_t stream) {
  Gatherers& all = gatherers();
  if (all.waiting.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  std::lock_guard lock(all.mutex);
  const auto found = all.of.find(context->id);
  if (found == all.of.end() || !found->second.waited) return CUDA_SUCCESS;
  return wire::stream_wait_event(call, stream, found->second.waited, 0);
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  Call call;
  Context* found = nullptr;
  CUresult result = find_context(call, context, event, &found);
  if (result == CUDA_SUCCESS && events().find(event)->context != found->handle) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) result = refuse_captures(call, found);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(gatherers().mutex);
  Gatherer* gatherer = nullptr;
  result = gatherer_of(call, found, &gatherer);
  for (const uint64_t stream : streams_of(found)) {
    if (result == CUDA_SUCCESS) result = wire::event_record(call, gatherer->one, stream, 0);
    if (result == CUDA_SUCCESS) result = wire::stream_wait_event(call, gatherer->stream, gatherer->one, 0);
  }
  return result == CUDA_SUCCESS ? wire::event_record(call, to_wire(event), gatherer->stream, 0) : result;
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
  Call call;
  Context* found = nullptr;
  CUresult result = find_context(call, context, event, &found);
  if (result == CUDA_SUCCESS) result = refuse_captures(call, found);
  if (result != CUDA_SUCCESS) return result;
  Gatherers& all = gatherers();
  std::lock_guard lock(all.mutex);
  Gatherer* gatherer = nullptr;
  result = gatherer_of(call, found, &gatherer);
  if (result == CUDA_SUCCESS && !gatherer->waited) {
    result = wire::event_create(call, CU_EVENT_DISABLE_TIMING, &gatherer->waited);
    if (result == CUDA_SUCCESS) all.waiting.fetch_add(1);
  }
  if (result == CUDA_SUCCESS) result = wire::stream_wait_event(call, gatherer->stream, to_wire(event), 0);
  if (result == CUDA_SUCCESS) result = wire::event_record(call, gatherer->waited, gatherer->stream, 0);
  for (const uint64_t stream : streams_of(found)) {
    if (result == CUDA_SUCCESS) result = wire::stream_wait_event(call, stream, gatherer->waited, 0);
  }
  return result;
}

}  // extern "C"
