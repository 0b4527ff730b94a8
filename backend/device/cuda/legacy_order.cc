#include "backend/device/cuda/legacy_order.h"

namespace bandsaw::cuda {

std::shared_ptr<LegacyOrder::Blocking> LegacyOrder::add(CUstream stream) {
  auto made = std::make_shared<Blocking>(Blocking{stream});
  std::lock_guard lock(mutex_);
  streams_.push_back(made);
  return made;
}

// What a stream has been given is done although the stream goes.
void LegacyOrder::remove(Blocking& stream) {
  std::lock_guard lock(mutex_);
  if (stream.used && legacy_after(stream) != CUDA_SUCCESS) --used_;
  if (stream.end) driver_->cuEventDestroy(std::exchange(stream.end, nullptr));
  std::erase_if(streams_, [&](const auto& entry) { return entry.get() == &stream; });
}

// With mutex_ held, like the next two.
CUresult LegacyOrder::record(CUevent* end, CUstream stream) {
  if (!*end) {
    if (const CUresult result = driver_->cuEventCreate(end, CU_EVENT_DISABLE_TIMING)) return result;
  }
  return driver_->cuEventRecordWithFlags(*end, stream, 0);
}

CUresult LegacyOrder::legacy_after(Blocking& stream) {
  if (const CUresult result = record(&stream.end, stream.handle)) return result;
  if (const CUresult result = driver_->cuStreamWaitEvent(CU_STREAM_LEGACY, stream.end, 0)) return result;
  stream.used = false;
  --used_;
  return CUDA_SUCCESS;
}

CUresult LegacyOrder::legacy_after_all(bool some_capture) {
  for (size_t i = 0; some_capture && i < streams_.size(); ++i) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (const CUresult result = driver_->cuStreamIsCapturing(streams_[i]->handle, &status)) return result;
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  for (size_t i = 0; used_ > 0 && i < streams_.size(); ++i) {
    if (!streams_[i]->used) continue;
    if (const CUresult result = legacy_after(*streams_[i])) return result;
  }
  return CUDA_SUCCESS;
}

CUresult LegacyOrder::before(Blocking& stream) {
  std::lock_guard lock(mutex_);
  if (stream.seen != given_) {
    if (recorded_ != given_) {
      if (const CUresult result = record(&legacy_end_, CU_STREAM_LEGACY)) return result;
      recorded_ = given_;
    }
    if (const CUresult result = driver_->cuStreamWaitEvent(stream.handle, legacy_end_, 0)) return result;
    stream.seen = given_;
  }
  if (!std::exchange(stream.used, true)) ++used_;
  return CUDA_SUCCESS;
}

CUresult LegacyOrder::before_legacy(bool some_capture) {
  std::lock_guard lock(mutex_);
  const CUresult result = legacy_after_all(some_capture);
  if (result == CUDA_SUCCESS) ++given_;
  return result;
}

CUresult LegacyOrder::legacy_waits(bool some_capture) {
  std::lock_guard lock(mutex_);
  return legacy_after_all(some_capture);
}

void LegacyOrder::clear() {
  std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->end) driver_->cuEventDestroy(std::exchange(stream->end, nullptr));
  }
  if (legacy_end_) driver_->cuEventDestroy(std::exchange(legacy_end_, nullptr));
  streams_.clear();
}

}  // namespace bandsaw::cuda
