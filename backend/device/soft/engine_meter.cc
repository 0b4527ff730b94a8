#include "backend/device/soft/engine_meter.h"

#include <utility>

#include "backend/device/soft/op.h"

namespace bandsaw::soft {

void EngineMeter::begin() {
  std::lock_guard lock(mutex_);
  if (working_++ == 0) since_ = now_ns();
}

uint64_t EngineMeter::end() {
  std::lock_guard lock(mutex_);
  const int64_t now = now_ns(), busy = now - since_;
  since_ = now;
  --working_;
  return static_cast<uint64_t>(busy);
}

uint64_t EngineWork::end() {
  const uint64_t busy = meter_->end();
  if (time_slice_) time_slice_->busy_ns += busy;
  time_slice_.reset();
  return busy;
}

void EngineMeters::time_slice_begin(unsigned engine) {
  std::lock_guard lock(mutex_);
  time_slices_[engine] = std::make_shared<MeteredTimeSlice>();
}

void EngineMeters::time_slice_end(unsigned engine, TimeSliceDone done) {
  std::shared_ptr<MeteredTimeSlice> slice;  // may end with this function, without the lock
  std::lock_guard lock(mutex_);
  slice = time_slices_[engine] ? std::exchange(time_slices_[engine], nullptr) : std::make_shared<MeteredTimeSlice>();
  slice->done = std::move(done);
}

EngineWork EngineMeters::work(unsigned engine) {
  std::lock_guard lock(mutex_);
  return {&meters_[engine], time_slices_[engine] ? time_slices_[engine] : time_slices_[kCompute]};
}

}  // namespace bandsaw::soft
