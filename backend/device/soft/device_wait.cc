// Waiting for streams, events and contexts.
#include <algorithm>

#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

void SoftDevice::context_synchronize(const ContextRef& context, Done done) {
  const SoftContextRef alive = as(context);
  if (const CUresult error = alive->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : scheduler_.error()) return done(error);
  Ops after;
  {
    std::lock_guard lock(scheduler_.mutex());
    for (const auto& weak : alive->streams) {
      const auto stream = weak.lock();
      if (stream && capturing(*stream)) {
        refuse_in_capture(*stream);
        after.clear();
        after.push_back(nullptr);
        break;
      }
    }
    if (after.empty()) follow_context(*alive, &after);
  }
  if (!after.empty() && !after.front()) return done(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  when_done(alive, after, [this, done = std::move(done)](CUresult result) {
    trim_pools();
    done(result);
  });
}

void SoftDevice::when_done(const SoftContextRef& context, const Ops& after, Done done) {
  OpRef op;
  {
    std::lock_guard lock(scheduler_.mutex());
    const bool all = std::all_of(after.begin(), after.end(), [](const OpRef& one) { return one->is_complete(); });
    if (!all) {
      op = std::make_shared<CallOp>(context, nullptr);
      op->done = std::move(done);
      if (!scheduler_.link(op, after)) return;
    }
  }
  if (op) {
    scheduler_.start(op);
  } else {
    done(scheduler_.error());
  }
}

CUresult SoftDevice::stream_query(const StreamRef& stream) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  SoftStream& asked = as(stream);
  if (const CUresult refused = refuse_in_capture(asked)) return refused;
  Ops after;
  follow(asked, &after);
  return after.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void SoftDevice::stream_synchronize(const StreamRef& stream, Done done) {
  SoftStream& asked = as(stream);
  CUresult refused = scheduler_.error();
  Ops after;
  if (!refused) {
    std::lock_guard lock(scheduler_.mutex());
    refused = asked.context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : refuse_in_capture(asked);
    if (!refused) follow(asked, &after);
  }
  if (refused) return done(refused);
  when_done(asked.context, after, [this, done = std::move(done)](CUresult result) {
    trim_pools();
    done(result);
  });
}

// Asking after an event of a capture, or waiting for it, spoils the capture. With the scheduler's lock.
CUresult SoftDevice::refuse_captured(const SoftEvent& event) {
  if (!event.capture) return CUDA_SUCCESS;
  event.capture->invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult SoftDevice::event_query(const EventRef& event) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const SoftEvent& asked = as(event);
  if (const CUresult refused = refuse_captured(asked)) return refused;
  return awaited_record(asked.context, asked) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

void SoftDevice::event_synchronize(const EventRef& event, Done done) {
  const SoftEvent& asked = as(event);
  CUresult refused = scheduler_.error();
  Ops after;
  bool begin = false;  // another process's record, which nothing of this process comes before
  if (!refused) {
    std::lock_guard lock(scheduler_.mutex());
    refused = refuse_captured(asked);
    if (const OpRef record = awaited_record(asked.context, asked)) {
      begin = record != asked.record && scheduler_.link(record, {});
      after.push_back(record);
    }
  }
  if (refused) return done(refused);
  if (begin) scheduler_.start(after.front());
  when_done(asked.context, after, std::move(done));
}

}  // namespace bandsaw::soft
