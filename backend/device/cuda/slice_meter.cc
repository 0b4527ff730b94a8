#include "backend/device/cuda/slice_meter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <utility>

namespace bandsaw::cuda {

using Clock = std::chrono::steady_clock;

// Whoever still has something of it to do holds a reference; the last one's end is the slice's.
struct SliceMeter::Slice {
  Slice(SliceMeter* its_meter, unsigned its_engine) : meter(its_meter), engine(its_engine) {}
  ~Slice() { meter->finish(*this); }

  SliceMeter* const meter;
  const unsigned engine;
  std::vector<Part> parts;  // added to while it is open
  uint64_t bytes = 0;
  std::atomic<uint64_t> held_ns{0};
  std::atomic<bool> failed{false};
  SliceDone done;
};

SliceMeter::SliceMeter(DriverRef driver, Completions* completions, DeviceHost* host)
    : driver_(std::move(driver)), completions_(completions), host_(host), events_(driver_, CU_EVENT_DEFAULT) {}

SliceMeter::~SliceMeter() {
  for (SliceRef& slice : open_) slice.reset();
}

void SliceMeter::begin(unsigned engine) {
  auto slice = std::make_shared<Slice>(this, engine);
  std::lock_guard lock(mutex_);
  open_[engine].swap(slice);
}

void SliceMeter::touch(unsigned engine, const std::shared_ptr<CudaStream>& stream, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Slice* const slice = open_[engine].get();
  if (!slice) return;
  slice->bytes += bytes;
  const bool known = std::any_of(slice->parts.rbegin(), slice->parts.rend(),
                                 [&](const Part& part) { return part.stream == stream && !part.end; });
  if (known) return;
  Part part{stream};
  if (events_.take(stream->context, &part.start) != CUDA_SUCCESS) return;
  if (driver_->cuEventRecordWithFlags(part.start, stream->handle, 0) != CUDA_SUCCESS) slice->failed = true;
  slice->parts.push_back(std::move(part));
}

// With mutex_ held.
void SliceMeter::close(const SliceRef& slice, Part& part) {
  if (part.end) return;
  const CudaStream& stream = *part.stream;
  CUresult result = stream.context->alive ? make_current(*driver_, *stream.context) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (result == CUDA_SUCCESS) result = events_.take(stream.context, &part.end);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(part.end, stream.handle, 0);
  if (result == CUDA_SUCCESS) {
    result = completions_->after(part.stream, [slice](CUresult outcome) {
      if (outcome != CUDA_SUCCESS) slice->failed = true;
    });
  }
  if (result != CUDA_SUCCESS) slice->failed = true;
}

void SliceMeter::leave(const std::shared_ptr<CudaStream>& stream) {
  close_if([&](const Part& part) { return part.stream == stream; });
}

void SliceMeter::leave(const CudaContextRef& context) {
  close_if([&](const Part& part) { return part.stream->context == context; });
}

template <class Matches>
void SliceMeter::close_if(Matches matches) {
  std::lock_guard lock(mutex_);
  for (const SliceRef& slice : open_) {
    if (!slice) continue;
    for (Part& part : slice->parts) {
      if (matches(part)) close(slice, part);
    }
  }
}

void SliceMeter::end(unsigned engine, SliceDone done) {
  SliceRef slice;
  {
    std::lock_guard lock(mutex_);
    slice.swap(open_[engine]);
    if (slice) {
      slice->done = std::move(done);
      for (Part& part : slice->parts) close(slice, part);
    }
  }
  if (!slice) done(0);
}

std::shared_ptr<void> SliceMeter::hold(unsigned engine, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const SliceRef slice = open_[engine];
  if (!slice) return nullptr;
  slice->bytes += bytes;
  return {nullptr, [slice, since = Clock::now()](void*) { slice->held_ns += (Clock::now() - since).count(); }};
}

// Milliseconds in which at least one stream of the context was at it; all their events have been reached.
double SliceMeter::busy_ms(const CudaContextRef& context, const std::vector<Part>& parts) const {
  std::vector<std::pair<float, float>> spans;  // after the first stream's start
  CUevent origin = nullptr;
  for (const Part& part : parts) {
    if (part.stream->context != context) continue;
    if (!origin) origin = part.start;
    float start = 0, length = 0;
    const bool known =
        (part.start == origin || driver_->cuEventElapsedTime(&start, origin, part.start) == CUDA_SUCCESS) &&
        driver_->cuEventElapsedTime(&length, part.start, part.end) == CUDA_SUCCESS;
    if (known) spans.emplace_back(start, start + length);
  }
  std::sort(spans.begin(), spans.end());
  double busy = 0;
  float covered = spans.empty() ? 0 : spans.front().first;
  for (const auto& [start, end] : spans) {
    if (end > covered) busy += end - std::max(start, covered);
    covered = std::max(covered, end);
  }
  return busy;
}

// Contexts take turns on the GPU, and have no clock in common.
uint64_t SliceMeter::busy_ns(const std::vector<Part>& parts) const {
  std::set<CudaContextRef> contexts;
  for (const Part& part : parts) contexts.insert(part.stream->context);
  double busy = 0;
  for (const CudaContextRef& context : contexts) {
    if (context->alive) busy += busy_ms(context, parts);  // else its events went with it
  }
  return static_cast<uint64_t>(busy * 1e6);
}

void SliceMeter::finish(Slice& slice) {
  const uint64_t busy = (slice.failed ? 0 : busy_ns(slice.parts)) + slice.held_ns;
  for (const Part& part : slice.parts) {
    for (const CUevent event : {part.start, part.end}) {
      if (event) events_.give(part.stream->context, event);
    }
  }
  host_->account(static_cast<int>(slice.engine), busy, slice.bytes);
  if (slice.done) slice.done(busy);
}

}  // namespace bandsaw::cuda
