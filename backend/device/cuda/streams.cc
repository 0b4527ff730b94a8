#include "backend/device/cuda/streams.h"

#include <algorithm>

namespace bandsaw::cuda {

void Streams::add(const std::shared_ptr<CudaStream>& stream) {
  std::lock_guard lock(mutex_);
  if (streams_.size() >= most_) {
    std::erase_if(streams_, [](const auto& kept) { return kept.expired(); });
    most_ = 2 * streams_.size() + 64;
  }
  streams_.push_back(stream);
}

std::vector<std::shared_ptr<CudaStream>> Streams::all() {
  std::vector<std::shared_ptr<CudaStream>> all;
  std::lock_guard lock(mutex_);
  for (const auto& kept : streams_) {
    if (auto stream = kept.lock()) all.push_back(std::move(stream));
  }
  return all;
}

// With the captures' lock, as all up to note_legacy_end(), and forget_capture().
bool Streams::captures(CUstream stream) const {
  if (began_.empty()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Whether work on the legacy stream would have to wait for a stream that captures.
bool Streams::legacy_is_implied(const CudaContextRef& context) {
  if (began_.empty() || context->order) return false;  // with an order all are made non-blocking
  const auto implies = [&](const std::shared_ptr<CudaStream>& stream) {
    return stream->context == context && !stream->apart && captures(stream->handle);
  };
  return std::ranges::any_of(all(), implies);
}

CUresult Streams::put(CUstream stream, const CudaContextRef& context, Ends* ends) {
  const auto end = std::make_shared<End>(&events_, context);
  if (const CUresult result = events_.take(context, &end->event)) return result;
  ends->push_back(end);
  return driver_->cuEventRecordWithFlags(end->event, stream, 0);
}

CUresult Streams::put_on_all(const CudaContextRef& context, Ends* ends) {
  if (legacy_is_implied(context)) {
    if (const auto before = before_captures_.find(context->id); before != before_captures_.end())
      ends->push_back(before->second);
  } else if (!context->legacy.finished() && driver_->cuStreamQuery(CU_STREAM_LEGACY) != CUDA_SUCCESS) {
    // Else streams would wait for one another that did not before. What has ended is not to wait for a time slice.
    if (const CUresult result = put(CU_STREAM_LEGACY, context, ends)) return result;
  }
  for (const auto& stream : all()) {
    if (stream->work.finished() || !stream->context->alive) continue;
    if (const CUresult result = make_current(*driver_, *stream->context)) return result;
    if (captures(stream->handle) || driver_->cuStreamQuery(stream->handle) == CUDA_SUCCESS) continue;
    if (const CUresult result = put(stream->handle, stream->context, ends)) return result;
  }
  return make_current(*driver_, *context);
}

// While streams capture that the legacy one waits for, nothing can be put there.
void Streams::note_legacy_end(const CudaStream& stream) {
  const CudaContextRef& context = stream.context;
  if (stream.apart || context->order || context->legacy.finished() || legacy_is_implied(context)) return;
  Ends ends;
  if (put(CU_STREAM_LEGACY, context, &ends) == CUDA_SUCCESS) before_captures_[context->id] = ends.front();
}

CUresult Streams::begin_capture(const std::shared_ptr<CudaStream>& stream, const std::function<CUresult()>& begin) {
  const auto lock = lock_captures();
  note_legacy_end(*stream);
  const CUresult result = begin();
  if (result == CUDA_SUCCESS) began_.emplace(stream.get(), stream->context->id);
  captures_ = began_.size();
  return result;
}

void Streams::forget_capture(const CudaStream& stream) {
  began_.erase(&stream);
  captures_ = began_.size();
}

void Streams::capture_ended(const CudaStream& stream) {
  const auto lock = lock_captures();
  forget_capture(stream);
}

std::unique_lock<std::mutex> Streams::context_goes(const CudaContext& context) {
  auto lock = lock_captures();
  std::erase_if(began_, [&](const auto& began) { return began.second == context.id; });
  captures_ = began_.size();
  before_captures_.erase(context.id);
  return lock;
}

CUresult Streams::leave(const std::shared_ptr<CudaStream>& stream) {
  const auto no_settling = lock_captures();
  if (captures(stream->handle)) {  // what it was given never runs there; a graph that it has joined goes on without it
    forget_capture(*stream);
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const auto& kept) { return kept.lock() == stream; });
    return stream->destroy();
  }
  if (stream->work.finished() || driver_->cuStreamQuery(stream->handle) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return completions_->after(stream, [](CUresult) {});
}

CUresult Streams::wait(const End& end, AdaptiveWait* waiting) const {
  for (;;) {
    if (!end.context->alive) return CUDA_SUCCESS;  // its work went with it
    const CUresult result = driver_->cuEventQuery(end.event);
    if (result != CUDA_ERROR_NOT_READY) return result;
    waiting->pass();
  }
}

CUresult Streams::settle(const CudaContextRef& context) {
  Ends ends;
  {
    const auto lock = lock_captures();
    if (const CUresult result = put_on_all(context, &ends)) return result;
  }
  AdaptiveWait waiting;
  return wait(ends, &waiting);
}

Streams::Ends Streams::ends_of(const CudaContextRef& context, std::span<const CUstream> streams) {
  const auto lock = lock_captures();
  Ends ends;
  if (!began_.empty()) return ends;
  for (const CUstream stream : streams) {
    if (put(stream, context, &ends) != CUDA_SUCCESS) return {};
  }
  return ends;
}

CUresult Streams::wait(const Ends& ends, AdaptiveWait* waiting) const {
  for (const EndRef& end : ends) {
    if (const CUresult result = wait(*end, waiting)) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
