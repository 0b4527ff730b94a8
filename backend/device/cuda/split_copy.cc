#include "backend/device/cuda/split_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace bandsaw::cuda {

SplitCopy::SplitCopy(DriverRef driver, Pinned* pinned, Sizes sizes)
    : driver_(std::move(driver)), pinned_(pinned), sizes_(sizes), events_(driver_, CU_EVENT_DISABLE_TIMING) {}

SplitCopy::~SplitCopy() {
  if (!memory_) return;
  pinned_->remove(memory_);
  munmap(memory_, sizes_.chunk_bytes * sizes_.chunks);
}

// Called with mutex_ held, when somebody first needs them: most devices never do.
bool SplitCopy::make_chunks() {
  if (memory_) return true;
  const uint64_t bytes = sizes_.chunk_bytes * sizes_.chunks;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (pinned_->add(memory, bytes, false) != CUDA_SUCCESS) {
    munmap(memory, bytes);
    return false;
  }
  memory_ = static_cast<std::byte*>(memory);
  return true;
}

// One copy on its way: chunk after chunk is started on the stream and ends; `started` - `ended` of them hold a buffer.
class SplitCopy::Run {
 public:
  Run(SplitCopy* owner, const std::shared_ptr<CudaStream>& stream, uint64_t bytes)
      : owner_(*owner), stream_(stream), bytes_(bytes), events_(owner->sizes_.chunks) {
    for (CUevent& event : events_) {
      if (result == CUDA_SUCCESS) result = owner_.events_.take(stream_->context, &event);
    }
  }
  ~Run() {
    while (ended < started) wait();  // the GPU lets go of the buffers before anybody else has them
    for (CUevent event : events_) {
      if (event) owner_.events_.give(stream_->context, event);
    }
  }

  uint64_t count() const { return (bytes_ + chunk() - 1) / chunk(); }
  bool has_buffer() const { return started - ended < owner_.sizes_.chunks; }
  uint64_t offset(uint64_t number) const { return number * chunk(); }
  uint64_t length(uint64_t number) const { return std::min(chunk(), bytes_ - offset(number)); }
  std::byte* buffer(uint64_t number) const { return owner_.memory_ + number % owner_.sizes_.chunks * chunk(); }

  // Counts the next one as started if the driver took it.
  void start(CUresult taken) {
    result = taken;
    if (result != CUDA_SUCCESS) return;
    result = owner_.driver_->cuEventRecordWithFlags(event(started), stream_->handle, 0);
    ++started;
  }
  // For the end of the oldest.
  void wait() {
    const CUresult outcome = owner_.driver_->cuEventSynchronize(event(ended));
    if (result == CUDA_SUCCESS) result = outcome;
    ++ended;
  }

  CUresult result = CUDA_SUCCESS;
  uint64_t started = 0, ended = 0;

 private:
  uint64_t chunk() const { return owner_.sizes_.chunk_bytes; }
  CUevent event(uint64_t number) const { return events_[number % events_.size()]; }

  SplitCopy& owner_;
  const std::shared_ptr<CudaStream>& stream_;
  const uint64_t bytes_;
  std::vector<CUevent> events_;
};

CUresult SplitCopy::to_device(const std::shared_ptr<CudaStream>& stream, uint64_t device, const std::byte* host,
                              uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!make_chunks()) return CUDA_ERROR_OUT_OF_MEMORY;
  Run run(this, stream, bytes);
  for (uint64_t i = 0; i < run.count() && run.result == CUDA_SUCCESS; ++i) {
    if (!run.has_buffer()) run.wait();
    std::memcpy(run.buffer(i), host + run.offset(i), run.length(i));
    run.start(driver_->cuMemcpyHtoDAsync(device + run.offset(i), run.buffer(i), run.length(i), stream->handle));
  }
  while (run.ended < run.started) run.wait();
  return run.result;
}

}  // namespace bandsaw::cuda
