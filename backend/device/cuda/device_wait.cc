// Waiting for the GPU: for a moment on the caller's thread, which sees the end soonest, then on a waiter's.
#include <algorithm>
#include <chrono>

#include "backend/device/cuda/adaptive_wait.h"
#include "backend/device/cuda/cuda_device.h"
#include "memory/base/yield.h"

namespace bandsaw::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Handing a wait to another thread and back costs up to 10 us, which is little beside a wait of this length.
constexpr std::chrono::microseconds kPollFewCores{1000}, kPollManyCores{5000};

// The call, when it does not block any more: the driver's own waits take a whole processor.
template <class Ask>
std::function<CUresult()> asking(AdaptiveWait waiting, Ask ask, std::function<CUresult()> call) {
  return [waiting, ask, call = std::move(call)]() mutable {
    while (ask() == CUDA_ERROR_NOT_READY) waiting.pass();
    waiting.over();
    return call();
  };
}

}  // namespace

void CudaDevice::finished(CUresult result, const Done& done) {
  const CUresult told = check(result);
  tell_output();
  if (done) done(told);
}

void CudaDevice::wait(const CudaContextRef& context, std::function<CUresult()> call, Done done) {
  waiter_.run([this, context, call = std::move(call), done = std::move(done)] {
    CUresult result = enter(context);
    if (result == CUDA_SUCCESS) result = call();
    if (pools_hold_) settle_pools();
    finished(result, done);
  });
}

CUresult CudaDevice::flush() {
  if ((!may_print_ && !pools_hold_) || streams_->some_capture()) return CUDA_SUCCESS;
  return driver_->cuStreamSynchronize(CU_STREAM_LEGACY);
}

void CudaDevice::when_idle(const CudaContextRef& context, std::function<CUresult()> then, Done done) {
  auto call = [this, context, then = std::move(then)]() -> CUresult {
    const CUresult result = streams_->settle(context);
    if (pools_hold_) trim_pools();
    return result == CUDA_SUCCESS ? then() : result;
  };
  wait(context, std::move(call), std::move(done));
}

// In the primary context: other contexts of a process have time slices of their own, and parts of the SMs their order.
// The blocks of a cooperative kernel wait for each other, and the last may find no place beside the keep-alive.
bool CudaDevice::keep_engine(std::function<Keep()> how, std::function<void()> ended) {
  return !partition_ && may_keep_ && !config_.replaceable &&
         keep_alive_->begin(own_context(), std::move(how), std::move(ended));
}

// A stream that captures may not be touched.
bool CudaDevice::keep_behind() {
  if (keep_alive_->wants_to_follow() && enter() == CUDA_SUCCESS && !streams_->some_capture()) keep_alive_->follow();
  return keep_alive_->has_work();
}

void CudaDevice::work_goes_on(const StreamRef& stream) {
  if (!keep_alive_->follows()) return;
  keep_alive_->work_goes_on(std::static_pointer_cast<CudaStream>(stream));
  if (keep_alive_->is_late()) keep_behind();
}

void CudaDevice::work_ends(const StreamRef& stream) {
  if (keep_alive_->has_work() && !streams_->some_capture()) keep_alive_->work_ends(as(stream));
}

void CudaDevice::keep_no_more() {
  if (may_keep_.exchange(false)) keep_alive_->end();
}

CUresult CudaDevice::when_done(const StreamRef& stream, Done done) {
  return completions_->after(std::static_pointer_cast<CudaStream>(stream),
                             [this, done = std::move(done)](CUresult outcome) { finished(outcome, done); });
}

void CudaDevice::stream_when_done(const StreamRef& stream, Done done) {
  CUresult result = enter(stream);
  if (result == CUDA_SUCCESS) result = when_done(stream, done);
  if (result != CUDA_SUCCESS) finished(result, done);
}

// The call, which does not block any more, is also what makes the driver write what kernels printed, and its pools give
// memory back.
void CudaDevice::over(CUresult result, const std::function<CUresult()>& call, const Done& done) {
  if (result == CUDA_SUCCESS && (may_print_ || pools_hold_)) result = call();
  if (pools_hold_) settle_pools();
  keep_alive_->waited();
  finished(result, done);
}

// On few cores who polls would only keep the guest's thread from its own.
AdaptiveWait CudaDevice::begin_wait() {
  return has_many_cores() ? AdaptiveWait(&wait_lengths_, host_) : AdaptiveWait();
}

// True: it was, and `done` was told.
bool CudaDevice::is_soon_over(const CudaContextRef& context, const std::function<CUresult()>& query,
                              const std::function<CUresult()>& call, const Done& done) {
  CUresult result = enter(context);
  const auto until = Clock::now() + (has_many_cores() ? kPollManyCores : kPollFewCores);
  while (result == CUDA_SUCCESS) {
    const CUresult now = query();
    if (now != CUDA_ERROR_NOT_READY) return over(now, call, done), true;
    keep_behind();
    if (host_->others_wait() || Clock::now() > until) break;
  }
  return false;
}

// While this thread waits, nothing more comes onto the streams, so it is enough to ask the driver for these. Measured
// on an H200: that takes 3 to 4 us less than a word which the GPU writes to host memory at their ends. And that word
// waits for a time slice of the compute engine, though a copy alone is waited for. Once another thread waits, others
// may put work onto the streams, and events tell what was there before.
void CudaDevice::wait_streams_soon(const CudaContextRef& context, std::vector<CUstream> streams,
                                   std::function<CUresult()> call, Done done) {
  const auto ask = [this, &streams] {  // of those that have ended no more: to hear that takes the driver 1.3 us
    while (!streams.empty()) {
      if (const CUresult result = driver_->cuStreamQuery(streams.back()); result != CUDA_SUCCESS) return result;
      streams.pop_back();
    }
    return CUDA_SUCCESS;
  };
  AdaptiveWait waiting = begin_wait();
  if (is_soon_over(context, ask, call, done)) return;
  Streams::Ends ends;
  if (enter(context) == CUDA_SUCCESS) ends = streams_->ends_of(context, streams);
  auto call_then = [this, waiting, ends = std::move(ends), call = std::move(call)]() mutable {
    streams_->wait(ends, &waiting);
    waiting.over();
    return call();  // which does not block any more, and tells a failure
  };
  wait(context, std::move(call_then), std::move(done));
}

// Those of the context whose work the program has not seen the end of, and how much that is. The legacy stream is not
// among them.
std::vector<CudaDevice::Unseen> CudaDevice::unseen_streams(const CudaContextRef& context) {
  std::vector<Unseen> unseen;
  for (auto& stream : streams_->all()) {
    if (stream->context != context || stream->work.finished()) continue;
    const uint64_t work = stream->work.count();
    unseen.emplace_back(std::move(stream), work);
  }
  return unseen;
}

// Not even a mark is put on the GPU, which would wait for a time slice there.
void CudaDevice::nothing_to_wait_for(const CudaContextRef& context, const Done& done) {
  CUresult result = enter(context);
  if (result == CUDA_SUCCESS) result = flush();
  if (pools_hold_) settle_pools();
  finished(result, done);
}

void CudaDevice::context_synchronize(const ContextRef& context, Done done) {
  const CudaContextRef waited = as(context);
  const uint64_t work = waited->work.count(), apart = waited->apart.count(), blocking = waited->blocking.count(),
                 legacy = waited->legacy.count();
  // The driver is to say where the program may not wait. A context in which nothing captures is waited for.
  if (streams_->some_capture()) return wait(waited, [this] { return driver_->cuCtxSynchronize(); }, done);
  if (waited->work.finished()) return nothing_to_wait_for(waited, done);
  constexpr size_t kFew = 4, kMany = 8;
  const bool none_apart = waited->apart.finished();
  std::vector<Unseen> unseen;
  if (!none_apart || !waited->blocking.finished()) unseen = unseen_streams(waited);
  std::vector<CUstream> streams{CU_STREAM_LEGACY};
  for (const auto& [stream, count] : unseen) {
    if (stream->apart && !none_apart) streams.push_back(stream->handle);
  }
  const size_t others = streams.size() - 1;
  const bool all_known = none_apart || (others != 0 && others <= kFew);
  auto settle = [this, waited, many = others > kMany] {
    if (many && !keep_alive_->active() && !streams_->some_capture()) return driver_->cuCtxSynchronize();
    const CUresult result = streams_->settle(waited);
    return result == CUDA_SUCCESS ? flush() : result;
  };
  auto note = [waited, work, apart, blocking, legacy, unseen = std::move(unseen),
               done = std::move(done)](CUresult result) {
    if (result == CUDA_SUCCESS) {
      for (const auto& [stream, count] : unseen) stream->work.finish(count);
      waited->work.finish(work);
      waited->apart.finish(apart);
      waited->blocking.finish(blocking);
      waited->legacy.finish(legacy);
    }
    if (done) done(result);
  };
  const bool in_order =
      !waited->order || (enter(waited) == CUDA_SUCCESS && waited->order->legacy_waits(false) == CUDA_SUCCESS);
  if (!all_known || !in_order) return wait(waited, std::move(settle), std::move(note));
  // When these have ended all has. To wait for each stream of a program that has dozens takes a fifth of a millisecond.
  auto synchronize = [this, settle = std::move(settle), streams] {
    if (streams_->some_capture()) return settle();
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < streams.size() && result == CUDA_SUCCESS; ++i)
      result = driver_->cuStreamSynchronize(streams[i]);
    return result;
  };
  wait_streams_soon(waited, std::move(streams), std::move(synchronize), std::move(note));
}

// A wait for the legacy stream is one for all that are not apart from it.
void CudaDevice::stream_synchronize(const StreamRef& stream, Done done) {
  const CudaContextRef& context = as(stream).context;
  const bool is_legacy = as(stream).handle == CU_STREAM_LEGACY;
  if (context->order && is_legacy) {
    CUresult result = enter(context);
    if (result == CUDA_SUCCESS) result = context->order->legacy_waits(streams_->some_capture());
    if (result != CUDA_SUCCESS) return finished(result, done);
  }
  const uint64_t work = as(stream).work.count(), blocking = context->blocking.count(), legacy = context->legacy.count();
  std::vector<Unseen> unseen;
  if (is_legacy && !context->blocking.finished()) unseen = unseen_streams(context);
  std::erase_if(unseen, [](const Unseen& one) { return one.first->apart; });
  const bool is_over = is_legacy ? context->legacy.finished() && unseen.empty() : as(stream).work.finished();
  if (is_over && !context->order && !streams_->some_capture()) return nothing_to_wait_for(context, done);
  auto synchronize = [this, stream] { return driver_->cuStreamSynchronize(as(stream).handle); };
  auto note = [stream, work, blocking, legacy, is_legacy, unseen = std::move(unseen),
               done = std::move(done)](CUresult result) {
    if (result == CUDA_SUCCESS) {
      as(stream).work.finish(work);
      if (is_legacy) as(stream).context->blocking.finish(blocking);
      if (is_legacy) as(stream).context->legacy.finish(legacy);
      for (const auto& [other, count] : unseen) other->work.finish(count);
    }
    if (done) done(result);
  };
  wait_streams_soon(context, {as(stream).handle}, std::move(synchronize), std::move(note));
}

void CudaDevice::event_synchronize(const EventRef& event, Done done) {
  const auto ask = [this, event] { return driver_->cuEventQuery(as(event).handle); };
  const auto synchronize = [this, event] { return driver_->cuEventSynchronize(as(event).handle); };
  const Done note = [event, place = as(event).place(), done = std::move(done)](CUresult result) {
    if (result == CUDA_SUCCESS) as(event).reached(place);
    if (done) done(result);
  };
  AdaptiveWait waiting = begin_wait();
  if (is_soon_over(as(event).context, ask, synchronize, note)) return;
  wait(as(event).context, asking(waiting, ask, synchronize), note);
}

// What is ours on the stream, as the end of a time slice, is not the program's to wait for. The legacy stream stands
// for others too.
CUresult CudaDevice::stream_query(const StreamRef& stream) {
  const CudaStream& asked = as(stream);
  CUresult result = enter(asked.context);
  if (result == CUDA_SUCCESS && asked.context->order) result = keep_order(asked);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuStreamQuery(asked.handle);
  if (result == CUDA_ERROR_NOT_READY && asked.handle != CU_STREAM_LEGACY && asked.work.finished()) return CUDA_SUCCESS;
  if (result == CUDA_ERROR_NOT_READY) keep_behind();
  return check(result);
}

CUresult CudaDevice::event_query(const EventRef& event) {
  if (const CUresult result = enter(as(event).context)) return result;
  const CudaEvent::Place place = as(event).place();
  const CUresult result = driver_->cuEventQuery(as(event).handle);
  if (result == CUDA_SUCCESS) as(event).reached(place);
  if (result == CUDA_ERROR_NOT_READY) keep_behind();
  return check(result);
}

}  // namespace bandsaw::cuda
