// Streams for the moves of chunks between the device and host memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Of the moves of one call, whatever the thread's program captures meanwhile. Those of the last call are taken, unless
// their context has been replaced. Not thread-safe.
class MoveStreams {
 public:
  // `kept` outlives this.
  MoveStreams(DriverRef driver, CudaContextRef context, std::vector<std::shared_ptr<CudaStream>>* kept)
      : driver_(std::move(driver)), context_(std::move(context)), idle_(*kept) {
    std::erase_if(idle_, [this](const auto& one) { return one->context != context_; });
    driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~MoveStreams() { driver_->cuThreadExchangeStreamCaptureMode(&mode_); }
  MoveStreams(const MoveStreams&) = delete;
  MoveStreams& operator=(const MoveStreams&) = delete;

  CUresult take(std::shared_ptr<CudaStream>* stream) {
    if (!idle_.empty()) {
      *stream = std::move(idle_.back());
      idle_.pop_back();
      return CUDA_SUCCESS;
    }
    CUstream made = nullptr;
    const CUresult result = driver_->cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS) *stream = std::make_shared<CudaStream>(driver_, made, context_, true, true);
    return result;
  }
  void give(std::shared_ptr<CudaStream> stream) {
    if (stream) idle_.push_back(std::move(stream));
  }

 private:
  const DriverRef driver_;
  const CudaContextRef context_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  std::vector<std::shared_ptr<CudaStream>>& idle_;
};

}  // namespace bandsaw::cuda
