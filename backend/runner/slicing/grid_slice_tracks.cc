#include "backend/runner/slicing/grid_slice_tracks.h"

#include <algorithm>

namespace bandsaw::runner {

GridSliceTracks::~GridSliceTracks() {
  for (const Side& side : sides_) {
    if (side.stream) device_->stream_destroy(side.stream);
  }
}

CUresult GridSliceTracks::fork(const StreamRef& stream) {
  forked_ = stream;
  for (Side& side : sides_) side.used = false;
  CUresult result = CUDA_SUCCESS;
  if (!fork_) result = device_->event_create(context_.lock(), CU_EVENT_DISABLE_TIMING, &fork_);
  if (result == CUDA_SUCCESS) result = device_->event_record(fork_, stream, 0);
  if (result != CUDA_SUCCESS) fork_ = nullptr;
  return result;
}

StreamRef GridSliceTracks::at(size_t track) {
  if (track == 0) return forked_;
  if (!fork_) return nullptr;
  if (sides_.size() < track) sides_.resize(track);
  Side& side = sides_[track - 1];
  if (side.used) return side.stream;
  if (!side.stream && device_->stream_beside(forked_, &side.stream) != CUDA_SUCCESS) return nullptr;
  if (!side.end && device_->event_create(context_.lock(), CU_EVENT_DISABLE_TIMING, &side.end) != CUDA_SUCCESS) {
    return nullptr;
  }
  if (device_->stream_wait_event(side.stream, fork_, 0) != CUDA_SUCCESS) return nullptr;
  side.used = true;
  return side.stream;
}

CUresult GridSliceTracks::join() {
  CUresult worst = CUDA_SUCCESS;
  for (Side& side : sides_) {
    if (!std::exchange(side.used, false)) continue;
    CUresult result = device_->event_record(side.end, side.stream, 0);
    if (result == CUDA_SUCCESS) result = device_->stream_wait_event(forked_, side.end, 0);
    if (result != CUDA_SUCCESS) worst = result;
  }
  forked_ = nullptr;
  return worst;
}

bool GridSliceTracks::has_begun() const { return !fork_ || device_->event_query(fork_) != CUDA_ERROR_NOT_READY; }

std::shared_ptr<GridSliceTracks> GridSliceTracksPool::take(const ContextRef& context, const StreamRef& stream) {
  std::lock_guard lock(mutex_);
  kept_.remove_if([](const auto& tracks) { return tracks->context_.expired() || tracks->stream_.expired(); });
  const auto same = std::find_if(kept_.begin(), kept_.end(), [&](const auto& tracks) {
    return tracks->stream_.lock() == stream && tracks->context_.lock() == context && !tracks->forked_;
  });
  if (same != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, same);
  } else {
    kept_.push_front(std::make_shared<GridSliceTracks>(device_, context, stream));
    if (kept_.size() > kMost) kept_.pop_back();
  }
  return kept_.front();
}

void GridSliceTracksPool::forget(const Context* context) {
  std::lock_guard lock(mutex_);
  kept_.remove_if([&](const auto& tracks) { return tracks->context_.lock().get() == context; });
}

}  // namespace bandsaw::runner
