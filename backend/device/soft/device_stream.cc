// Streams, events, host functions and stream values.
#include <algorithm>

#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

void add(const OpRef& op, std::vector<OpRef>* after) {
  if (op && !op->is_complete()) after->push_back(op);
}

}  // namespace

// The legacy default stream waits for all blocking streams of its context, and they wait for it.
void SoftDevice::follow(SoftStream& stream, Ops* after) {
  add(stream.tail, after);
  SoftContext& context = *stream.context;
  if (!stream.legacy) {
    if (stream.blocking() && context.legacy) add(context.legacy->tail, after);
    return;
  }
  std::erase_if(context.streams, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : context.streams) {
    const auto other = weak.lock();
    if (other && other->blocking()) add(other->tail, after);
  }
}

void SoftDevice::follow_context(SoftContext& context, Ops* after) {
  if (context.legacy) add(context.legacy->tail, after);
  for (const auto& weak : context.streams) {
    if (const auto stream = weak.lock()) add(stream->tail, after);
  }
}

CUresult SoftDevice::enqueue(SoftStream& stream, const OpRef& op) {
  if (const CUresult error = scheduler_.error()) return error;
  if (stream.context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  bool ready;
  {
    std::lock_guard lock(scheduler_.mutex());
    Ops after;
    follow(stream, &after);
    ready = scheduler_.link(op, after);
    stream.tail = op;
  }
  if (ready) scheduler_.start(op);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::stream_create(const ContextRef& context, uint32_t flags, int32_t priority, StreamRef* stream) {
  return stream_create_part(context, flags, priority, 0, 0, stream);
}

// SMs are alike here: how many a kernel has of them counts, not which.
CUresult SoftDevice::stream_create_part(const ContextRef& context, uint32_t flags, int32_t priority, uint32_t first,
                                        uint32_t count, StreamRef* stream) {
  if (const CUresult error = scheduler_.error()) return error;
  if (flags & ~uint32_t{CU_STREAM_NON_BLOCKING}) return CUDA_ERROR_INVALID_VALUE;
  if (first > sms_ || count > sms_ - first) return CUDA_ERROR_INVALID_VALUE;
  const SoftContextRef alive = as(context);
  if (alive->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  auto made = std::make_shared<SoftStream>(alive, next_stream_++, flags,
                                           std::clamp(priority, kGreatestPriority, kLeastPriority), false, count);
  std::lock_guard lock(scheduler_.mutex());
  alive->streams.push_back(made);
  *stream = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::stream_beside(const StreamRef& stream, StreamRef* made) {
  const SoftStream& beside = as(stream);
  return stream_create_part(beside.context, CU_STREAM_NON_BLOCKING, beside.priority, 0, beside.sms, made);
}

StreamRef SoftDevice::stream_legacy(const ContextRef& context) {
  std::lock_guard lock(scheduler_.mutex());
  return as(context)->legacy;
}

// The last operation keeps the stream in its context's list until it has run.
CUresult SoftDevice::stream_destroy(const StreamRef& stream) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& dying = as(stream);
  if (dying.legacy) return CUDA_ERROR_INVALID_HANDLE;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (dying.destroyed) return CUDA_ERROR_INVALID_HANDLE;
    dying.destroyed = true;
    abandon_capture(dying);
    if (!dying.tail || dying.tail->is_complete()) return CUDA_SUCCESS;
  }
  return enqueue(dying, std::make_shared<CallOp>(dying.context, [stream] { return CUDA_SUCCESS; }, true));
}

CUresult SoftDevice::stream_wait_event(const StreamRef& stream, const EventRef& event, uint32_t flags) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& waiting = as(stream);
  SoftEvent& awaited = as(event);
  OpRef op = std::make_shared<CallOp>(waiting.context, nullptr);
  bool ready;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(waiting) || awaited.capture) return capture_wait(waiting, awaited, flags);
    if (const CUresult refused = check_capture(waiting)) return refused;
    const OpRef record = awaited_record(waiting.context, awaited);
    if (!record) return CUDA_SUCCESS;
    Ops after;
    follow(waiting, &after);
    if (record == awaited.record) {
      after.push_back(record);
    } else {
      op = record;  // the wait itself
    }
    ready = scheduler_.link(op, after);
    waiting.tail = op;
  }
  if (ready) scheduler_.start(std::move(op));
  return CUDA_SUCCESS;
}

// Other processes hear of a record's end too, also when it is dropped: they would wait for ever.
void SoftDevice::note_record(SoftEvent& event, RecordOp& op) {
  if (!event.shared) return;
  event.own_record = event.shared->issue();
  op.done = [shared = event.shared, record = event.own_record](CUresult) { shared->complete(record); };
}

// What the event's last record is waited for by: null if it has ended. Another process's record is polled for.
OpRef SoftDevice::awaited_record(const SoftContextRef& context, const SoftEvent& event) {
  if (event.shared) {
    const uint64_t last = event.shared->issued();
    if (event.shared->is_complete(last)) return nullptr;
    if (last != event.own_record) return std::make_shared<SharedEventWait>(context, event.shared, last);
  }
  return event.record && !event.record->is_complete() ? event.record : nullptr;
}

CUresult SoftDevice::event_create(const ContextRef& context, uint32_t flags, EventRef* event) {
  if (const CUresult error = scheduler_.error()) return error;
  constexpr uint32_t kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<SoftEvent>(as(context), flags);
  if (flags & CU_EVENT_INTERPROCESS) {
    made->shared = SharedEvent::make();
    if (!made->shared) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *event = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::event_destroy(const EventRef&) { return scheduler_.error(); }

CUresult SoftDevice::event_record(const EventRef& event, const StreamRef& stream, uint32_t flags) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& recorded = as(stream);
  SoftEvent& into = as(event);
  if (into.context != recorded.context) return CUDA_ERROR_INVALID_HANDLE;
  auto op = std::make_shared<RecordOp>(recorded.context);
  bool ready;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(recorded)) return capture_record(recorded, into, flags);
    if (const CUresult refused = check_capture(recorded)) return refused;
    Ops after;
    follow(recorded, &after);
    note_record(into, *op);
    ready = scheduler_.link(op, after);
    recorded.tail = op;
    into.record = op;
    into.capture.reset();
    into.capture_dependencies.clear();
  }
  if (ready) scheduler_.start(std::move(op));
  return CUDA_SUCCESS;
}

std::optional<int64_t> SoftDevice::event_age(const EventRef& event) {
  std::lock_guard lock(scheduler_.mutex());
  const SoftEvent& of = as(event);
  if (of.capture || !of.record || !of.record->is_complete()) return std::nullopt;
  return now_ns() - of.record->nanoseconds();
}

CUresult SoftDevice::event_set_age(const EventRef& event, int64_t nanoseconds) {
  SoftEvent& of = as(event);
  auto op = std::make_shared<RecordOp>(of.context);
  bool ready;
  {
    std::lock_guard lock(scheduler_.mutex());
    ready = scheduler_.link(op, {});
  }
  if (ready) scheduler_.start(op);
  std::lock_guard lock(scheduler_.mutex());
  op->set_ended(now_ns() - nanoseconds);
  of.record = std::move(op);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::event_elapsed(const EventRef& start, const EventRef& end, float* milliseconds) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const SoftEvent &from = as(start), &to = as(end);
  if (from.capture || to.capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (((from.flags | to.flags) & CU_EVENT_DISABLE_TIMING) || !from.record || !to.record) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!from.record->is_complete() || !to.record->is_complete()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(to.record->nanoseconds() - from.record->nanoseconds()) / 1e6);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::callback(const StreamRef& stream, const HostCallback& callback) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) {
      if (callback.kind == VGPU_CALLBACK_STREAM) return refuse_in_capture(on);
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_HOST;
      content.host = callback;
      return capture_node(on, content, nullptr);
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  return enqueue(on, std::make_shared<HostOp>(on.context, callback, host_));
}

CUresult SoftDevice::value_word(uint64_t address, uint32_t bytes, ValueWord* word) {
  if ((bytes != 4 && bytes != 8) || address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  word->bytes = bytes;
  return resolve(address, bytes, &word->pointer);
}

// Of a batch of memory operations. Steps come one after the other, which is all that a barrier asks for.
CUresult SoftDevice::value_steps(const NodeContent& content, std::vector<ValueStep>* steps) {
  for (const vgpu_memory_op& operation : content.operations) {
    if (operation.kind == VGPU_MEMORY_OP_BARRIER) continue;
    ValueStep step;
    step.value = operation.value;
    step.wait = operation.kind == VGPU_MEMORY_OP_WAIT;
    step.condition = operation.flags;
    if (step.wait && step.condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = value_word(operation.address, operation.bytes, &step.word)) return refused;
    steps->push_back(step);
  }
  return CUDA_SUCCESS;
}

// With the scheduler's lock.
CUresult SoftDevice::capture_operation(SoftStream& stream, const vgpu_memory_op& operation) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  content.operations.push_back(operation);
  return capture_node(stream, content, nullptr);
}

CUresult SoftDevice::write_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                                 uint32_t flags) {
  if (const CUresult error = scheduler_.error()) return error;
  if (flags & ~uint32_t{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) return CUDA_ERROR_INVALID_VALUE;
  ValueWord word;
  if (const CUresult refused = value_word(address, bytes, &word)) return refused;
  SoftStream& on = as(stream);
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) return capture_operation(on, {address, value, VGPU_MEMORY_OP_WRITE, bytes, flags, 0});
    if (const CUresult refused = check_capture(on)) return refused;
  }
  return enqueue(on, std::make_shared<CallOp>(on.context, [this, word, value] {
                   if (word.store(value)) return CUDA_SUCCESS;
                   scheduler_.poison(CUDA_ERROR_ILLEGAL_ADDRESS);
                   return CUDA_ERROR_ILLEGAL_ADDRESS;
                 }));
}

CUresult SoftDevice::wait_value(const StreamRef& stream, uint64_t address, uint64_t value, uint32_t bytes,
                                uint32_t flags) {
  if (const CUresult error = scheduler_.error()) return error;
  const uint32_t condition = flags & ~uint32_t{CU_STREAM_WAIT_VALUE_FLUSH};
  if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  ValueWord word;
  if (const CUresult refused = value_word(address, bytes, &word)) return refused;
  SoftStream& on = as(stream);
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) return capture_operation(on, {address, value, VGPU_MEMORY_OP_WAIT, bytes, flags, 0});
    if (const CUresult refused = check_capture(on)) return refused;
  }
  return enqueue(on, std::make_shared<WaitValueOp>(on.context, word, value, condition));
}

}  // namespace bandsaw::soft
