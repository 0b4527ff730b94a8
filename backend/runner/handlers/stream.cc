#include "backend/runner/handlers/copies.h"
#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::stream_create(C call, uint32_t flags, int32_t priority, uint64_t* stream) {
  StreamRef made;
  CUresult result = device_.stream_create(call.context, flags, priority, &made);
  if (result != CUDA_SUCCESS) return result;
  result = give(HandleKind::kStream, std::move(made), call.context.handle, stream);
  if (result == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) != 0) world_.apart.add(stream_key(*stream, call.ring));
  return result;
}

CUresult Handlers::stream_create_part(C call, uint32_t flags, int32_t priority, uint32_t first, uint32_t count,
                                      uint64_t* stream) {
  StreamRef made;
  CUresult result = device_.stream_create_part(call.context, flags, priority, first, count, &made);
  if (result != CUDA_SUCCESS) return result;
  result = give(HandleKind::kStream, std::move(made), call.context.handle, stream);
  if (result == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) != 0) world_.apart.add(stream_key(*stream, call.ring));
  return result;
}

CUresult Handlers::stream_destroy(C call, R<Stream> stream) {
  if (!table().remove(HandleKind::kStream, stream.handle)) return CUDA_ERROR_INVALID_HANDLE;
  world_.apart.remove(stream_key(stream.handle, call.ring));
  capturing_.erase(stream.object.get());
  return device_.stream_destroy(stream);
}

void Handlers::stream_synchronize(C, R<Stream> stream, wire::Answer answer) {
  device_.stream_synchronize(stream, answer);
}

CUresult Handlers::stream_query(C, R<Stream> stream) { return device_.stream_query(stream); }

CUresult Handlers::stream_wait_event(C, R<Stream> stream, R<Event> event, uint32_t flags) {
  if (flags & CU_EVENT_WAIT_EXTERNAL) world_.objects.note_in_graphs(event.handle);
  return device_.stream_wait_event(stream, event, flags);
}

CUresult Handlers::stream_callback(C, R<Stream> stream, uint64_t function, uint64_t data, uint32_t kind) {
  if (kind != VGPU_CALLBACK_HOST_FUNCTION && kind != VGPU_CALLBACK_STREAM) return CUDA_ERROR_INVALID_VALUE;
  return device_.callback(stream, {static_cast<vgpu_callback_kind>(kind), function, data, stream.handle});
}

// A word that a stream writes or waits for: 4 or 8 bytes, aligned, in memory that kernels may use.
CUresult Handlers::check_word(uint64_t address, uint32_t bytes) {
  if ((bytes != 4 && bytes != 8) || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  CopyEnd end;
  RegionRef hold;
  return resolve_device(world_.memory, address, bytes, Access::kWrite, &end, &hold);
}

CUresult Handlers::stream_write_value(C, R<Stream> stream, uint64_t address, uint64_t value, uint32_t bytes,
                                      uint32_t flags) {
  const CUresult result = check_word(address, bytes);
  return result == CUDA_SUCCESS ? device_.write_value(stream, address, value, bytes, flags) : result;
}

CUresult Handlers::stream_wait_value(C, R<Stream> stream, uint64_t address, uint64_t value, uint32_t bytes,
                                     uint32_t flags) {
  const CUresult result = check_word(address, bytes);
  return result == CUDA_SUCCESS ? device_.wait_value(stream, address, value, bytes, flags) : result;
}

// The record loop has waited; what is left is to say that the word is no word.
CUresult Handlers::stream_hold(C, R<Stream>, uint64_t address, uint64_t) {
  const bool there = address % sizeof(uint64_t) == 0 && world_.memory.find(address, sizeof(uint64_t), Access::kRead);
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool Handlers::still_holds(const wire::CheckedRecord& record) const {
  const auto args = wire::read_args<wire::StreamHoldArgs>(record);
  if (!args || args->address % sizeof(uint64_t) != 0) return false;
  const GuestSpan word = world_.memory.find(args->address, sizeof(uint64_t), Access::kRead);
  if (!word) return false;
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(word.data), __ATOMIC_ACQUIRE) < args->value;
}

CUresult Handlers::event_create(C call, uint32_t flags, uint64_t* event) {
  EventRef made;
  const CUresult result = device_.event_create(call.context, flags, &made);
  return result == CUDA_SUCCESS ? give(HandleKind::kEvent, std::move(made), call.context.handle, event, true) : result;
}

CUresult Handlers::event_destroy(C, R<Event> event) {
  if (!table().remove(HandleKind::kEvent, event.handle)) return CUDA_ERROR_INVALID_HANDLE;
  withdraw(event.handle);
  world_.objects.forget_in_graphs(event.handle);
  return device_.event_destroy(event);
}

CUresult Handlers::event_record(C, R<Event> event, R<Stream> stream, uint32_t flags) {
  if (flags & CU_EVENT_RECORD_EXTERNAL) world_.objects.note_in_graphs(event.handle);
  return device_.event_record(event, stream, flags);
}

CUresult Handlers::event_query(C, R<Event> event) { return device_.event_query(event); }

void Handlers::event_synchronize(C, R<Event> event, wire::Answer answer) { device_.event_synchronize(event, answer); }

CUresult Handlers::event_elapsed(C, R<Event> start, R<Event> end, float* milliseconds) {
  return device_.event_elapsed(start, end, milliseconds);
}

CUresult Handlers::prepare_launch(C call, const vgpu_launch& launch, Bytes parameters, NextLaunch* next) {
  next->seq = call.seq;
  next->launch.code = find_code(world_.objects, launch.function);
  if (!next->launch.code.kernel && !next->launch.code.function) return CUDA_ERROR_INVALID_HANDLE;
  next->stream = world_.objects.find_stream(call, launch.stream);
  if (!next->stream) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = read_launch(launch, &next->launch)) return result;
  next->launch.parameters = parameters;
  const bool may_capture = !capturing_.empty();
  next->caller = {ring_of(call), call.context, stream_key(launch.stream, call.ring), may_capture};
  if (world_.slicer.enabled()) {
    next->prepared = world_.slicer.prepare(next->caller, next->stream, next->launch);
  }
  return CUDA_SUCCESS;
}

bool Handlers::awaits_compiler(const wire::CheckedRecord& record) const {
  const auto args = wire::read_args<wire::LaunchArgs>(record);
  if (!args) return false;
  const Code code = find_code(world_.objects, args->launch.function);
  const auto context = std::static_pointer_cast<Context>(world_.objects.find(HandleKind::kContext, record.context));
  return context && (code.kernel || code.function) && !device_.is_compiled(context, code);
}

bool Handlers::cuts_launch(const CommandRingRef& ring, const wire::CheckedRecord& record) {
  next_launch_.reset();
  const auto args = wire::read_args<wire::LaunchArgs>(record);
  if (!args || !world_.slicer.enabled()) return false;
  wire::CallContext call;
  call.ring = ring->id();
  call.sink = ring;
  call.seq = record.seq;
  call.context.handle = record.context;
  call.context.object = std::static_pointer_cast<Context>(table().find(HandleKind::kContext, record.context));
  NextLaunch next;
  // Of an error launch() tells.
  if (!call.context || prepare_launch(call, args->launch, record.tail, &next) != CUDA_SUCCESS) return false;
  next_launch_ = std::move(next);
  return next_launch_->prepared.cut != nullptr;
}

CUresult Handlers::launch(C call, const vgpu_launch& launch, Bytes parameters) {
  NextLaunch next;
  if (next_launch_ && next_launch_->seq == call.seq) {
    next = std::move(*next_launch_);
  } else if (const CUresult result = prepare_launch(call, launch, parameters, &next)) {
    return result;
  }
  next_launch_.reset();
  count(world_.usage_page.slot().launches);
  return world_.slicer.launch(std::move(next.prepared), next.caller, next.stream, next.launch);
}

}  // namespace bandsaw::runner
