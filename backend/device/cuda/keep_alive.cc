#include "backend/device/cuda/keep_alive.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

namespace bandsaw::cuda {
namespace {

// `words`: the number of the last kernel that is to end, and, 64 bytes on, of the last one that has begun.
constexpr char kCode[] = R"(.version 6.3
.target sm_70
.address_size 64
.visible .entry keep(.param .u64 words, .param .u32 number, .param .u64 nanoseconds) {
  .reg .b64 %at, %begin, %now, %length;
  .reg .b32 %number, %last;
  .reg .pred %p;
  ld.param.u64 %at, [words];
  ld.param.u32 %number, [number];
  ld.param.u64 %length, [nanoseconds];
  mov.u64 %begin, %globaltimer;
  st.volatile.global.u32 [%at+64], %number;
waits:
  ld.volatile.global.u32 %last, [%at];
  sub.u32 %last, %last, %number;
  setp.ge.s32 %p, %last, 0;
  @%p ret;
  nanosleep.u32 500;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %p, %now, %length;
  @%p bra waits;
  ret;
}
)";
constexpr std::chrono::microseconds kTick{500};
constexpr uint64_t kLength = 1'000'000;  // ns
// Beside work, one runs, and one begins as soon as that ends: at the beginning of a time slice the one that was
// interrupted is over.
constexpr uint32_t kQueued = 2;
// Behind work. Measured on an H200, with kernels of 13 us that are each waited for: one by itself holds nothing, steps
// take 65 us with two and 53 with three.
constexpr uint32_t kBehind = 3;

std::atomic<uint32_t>* counter_at(std::byte* slot, size_t offset) {
  // A kernel of the guest process can write there as well, and deceive itself.
  return reinterpret_cast<std::atomic<uint32_t>*>(slot + offset);
}
std::atomic<uint32_t>* last_of(std::byte* slot) { return counter_at(slot, 0); }
std::atomic<uint32_t>* begun_of(std::byte* slot) { return counter_at(slot, 64); }

}  // namespace

KeepAlive::KeepAlive(DriverRef driver, Pinned* pinned) : driver_(std::move(driver)), pinned_(pinned) {}

KeepAlive::~KeepAlive() {
  end();
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (slot_) pinned_->give_slot(slot_);
}

bool KeepAlive::begin(const CudaContextRef& context, std::function<Keep()> how, std::function<void()> ended) {
  std::lock_guard lock(mutex_);
  if (failed_ || stops_ || active_) return false;
  if (context_ != context) release();
  context_ = context;
  how_ = std::move(how);
  ended_ = std::move(ended);
  active_ = true;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
  return true;
}

void KeepAlive::end() {
  std::unique_lock lock(mutex_);
  if (active_) finish(&lock);
  release();
}

void KeepAlive::run() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // other threads may capture meanwhile
  driver_->cuThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stops_) {
    changed_.wait(lock, [this] { return active_ || stops_; });
    if (!active_ || stops_) continue;
    if (keeps_on()) {
      changed_.wait_for(lock, kTick, [this] { return stops_ || !active_; });
    } else {
      finish(&lock);
    }
  }
}

// With mutex_ held; not during the call of `ended`.
void KeepAlive::finish(std::unique_lock<std::mutex>* lock) {
  if (slot_) last_of(slot_)->store(launched_);
  follow_from_now_on(false);
  how_ = nullptr;
  const auto ended = std::exchange(ended_, nullptr);
  active_ = false;
  lock->unlock();
  ended();
  lock->lock();
}

bool KeepAlive::keeps_on() {
  const Keep how = how_ ? how_() : Keep::kNot;
  if (how == Keep::kNot || make_current(*driver_, *context_) != CUDA_SUCCESS || !prepare()) return false;
  const bool follows = how == Keep::kBehindWork;
  if (follows_ != follows) follow_from_now_on(follows);
  return follows || prolong();
}

bool KeepAlive::prolong() {
  for (uint32_t i = 0; i < kQueued && launched_ - begun_of(slot_)->load() < kQueued; ++i) {
    if (!launch()) return false;
  }
  return true;
}

// With mutex_ held. Or no more.
void KeepAlive::follow_from_now_on(bool follows) {
  first_ = 0;
  forget_work();
  follows_ = follows;
}

bool KeepAlive::launch() {
  uint64_t words = reinterpret_cast<uint64_t>(slot_), length = kLength;
  uint32_t number = launched_ + 1;
  void* parameters[] = {&words, &number, &length};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream_;
  if (driver_->cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), parameters, nullptr) != CUDA_SUCCESS)
    return false;
  launched_ = number;
  return true;
}

bool KeepAlive::has_begun() const {
  const uint32_t first = first_.load(std::memory_order_acquire);
  return first == 0 || static_cast<int32_t>(begun_of(slot_)->load(std::memory_order_relaxed) - first) >= 0;
}

// With mutex_ held. Null: nothing was issued there.
KeepAlive::Issued* KeepAlive::find(const CudaStream& stream) {
  const auto found =
      std::ranges::find_if(streams_, [&](const Issued& issued) { return issued.on.lock().get() == &stream; });
  return found == streams_.end() ? nullptr : &*found;
}

void KeepAlive::work_goes_on(const std::shared_ptr<CudaStream>& stream) {
  std::lock_guard lock(mutex_);
  if (!follows_ || stream->context != context_) return;
  Issued* const before = find(*stream);
  if (!before) {
    streams_.push_back({stream, nullptr});
  } else if (before->end) {
    events_.push_back(std::exchange(before->end, nullptr));
  }
  issued_.fetch_add(1, std::memory_order_release);
}

void KeepAlive::work_ends(const CudaStream& stream) {
  std::lock_guard lock(mutex_);
  if (Issued* const issued = find(stream); issued && !issued->end) record_end(stream, issued);
}

void KeepAlive::legacy_ends() {
  std::lock_guard lock(mutex_);
  for (Issued& issued : streams_) {
    const std::shared_ptr<CudaStream> stream = issued.on.lock();
    if (stream && !issued.end && stream->handle == CU_STREAM_LEGACY) record_end(*stream, &issued);
  }
}

bool KeepAlive::record_end(const CudaStream& stream, Issued* issued) {
  if (events_.empty()) {
    CUevent made = nullptr;
    if (driver_->cuEventCreate(&made, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
    events_.push_back(made);
  }
  if (driver_->cuEventRecordWithFlags(events_.back(), stream.handle, 0) != CUDA_SUCCESS) return false;
  issued->end = events_.back();
  events_.pop_back();
  return true;
}

void KeepAlive::forget(const CudaStream& stream) {
  std::lock_guard lock(mutex_);
  if (Issued* const issued = find(stream)) issued->on.reset();
}

// With mutex_ held: what comes next on its own stream does.
bool KeepAlive::wait_for_work() {
  for (Issued& issued : streams_) {
    const std::shared_ptr<CudaStream> stream = issued.on.lock();
    if (!stream && !issued.end) continue;  // it has ended, or the driver ends it by itself
    if (!issued.end && !record_end(*stream, &issued)) return false;
    if (driver_->cuStreamWaitEvent(stream_, issued.end, 0) != CUDA_SUCCESS) return false;
  }
  return true;
}

void KeepAlive::forget_work() {
  for (const Issued& issued : streams_) {
    if (issued.end) events_.push_back(issued.end);
  }
  streams_.clear();
  issued_ = 0;
}

// What ran until now ends only when there is more behind the work: else the engine was lost in between.
void KeepAlive::follow() {
  std::lock_guard lock(mutex_);
  if (!follows_ || issued_ == 0) return;
  const uint32_t before = launched_;
  bool there = wait_for_work();
  for (uint32_t i = 0; there && i < kBehind; ++i) there = launch();
  if (!there) how_ = nullptr;  // the program has failed
  forget_work();
  first_ = before + 1;
  waited_ = false;
  last_of(slot_)->store(before);
}

// What is there already is not made again. Priority: it takes the place of a block at once.
bool KeepAlive::prepare() {
  if (stream_) return true;
  if (!slot_) {
    slot_ = pinned_->take_slot();
    if (slot_) std::memset(slot_, 0, 128);
  }
  int least = 0, greatest = 0;
  failed_ = !slot_ ||
            driver_->cuLibraryLoadData(&library_, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0) != CUDA_SUCCESS ||
            driver_->cuLibraryGetKernel(&kernel_, library_, "keep") != CUDA_SUCCESS ||
            driver_->cuCtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS ||
            driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest) != CUDA_SUCCESS;
  return !failed_;
}

// With mutex_ held, while it is not active.
void KeepAlive::release() {
  const bool there = context_ && context_->alive && make_current(*driver_, *context_) == CUDA_SUCCESS;
  if (there && stream_) {
    driver_->cuStreamSynchronize(stream_);
    driver_->cuStreamDestroy(stream_);
  }
  for (const CUevent event : events_) {
    if (there) driver_->cuEventDestroy(event);
  }
  if (there && library_) driver_->cuLibraryUnload(library_);
  stream_ = nullptr;
  events_.clear();
  library_ = nullptr;
  context_ = nullptr;
}

}  // namespace bandsaw::cuda
