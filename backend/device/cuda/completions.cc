#include "backend/device/cuda/completions.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>

#include "backend/device/cuda/nap.h"

namespace bandsaw::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Short ones: whether a program rests between its steps is seen by when their ends are.
constexpr std::chrono::microseconds kNap{10}, kIdleNap{50};
// So long it naps with nothing to look for. Waking it from a sleep is a system call of whoever launches, which takes
// some 40 us in a virtual machine, and one of a hundred 0.2 ms. A program that works without a pause has something for
// it whenever a time slice closes, every 2 ms as a rule.
constexpr std::chrono::milliseconds kAwake{10};

}  // namespace

Completions::Completions(DriverRef driver)
    : driver_(std::move(driver)), events_(driver_, CU_EVENT_DISABLE_TIMING), thread_([this] { work(); }) {}

Completions::~Completions() {
  stop_ = true;
  arrivals_.fetch_add(1);
  arrivals_.notify_one();
  thread_.join();
}

CUresult Completions::after(const std::shared_ptr<CudaStream>& stream, Done done) {
  CUevent event = nullptr;
  CUresult result = events_.take(stream->context, &event);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(event, stream->handle, 0);
  if (result == CUDA_SUCCESS) add({.event = event, .pooled = true, .stream = stream, .done = std::move(done)});
  return result;
}

void Completions::when_reached(CUevent event, const std::shared_ptr<CudaStream>& stream, Done done) {
  add({.event = event, .pooled = false, .stream = stream, .done = std::move(done)});
}

void Completions::add(Entry entry) {
  {
    std::lock_guard lock(lock_);
    incoming_.push_back(std::move(entry));
  }
  arrivals_.fetch_add(1, std::memory_order_release);
  arrivals_.notify_one();  // no system call unless the thread sleeps
}

CUresult Completions::probe(const Entry& entry) const {
  return entry.stream->context->alive ? driver_->cuEventQuery(entry.event) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// True: there was nothing to look for before.
bool Completions::collect() {
  std::vector<Entry> fresh;
  {
    std::lock_guard lock(lock_);
    fresh.swap(incoming_);
  }
  const bool first = queues_.empty() && !fresh.empty();
  for (Entry& entry : fresh) queues_[entry.stream.get()].push_back(std::move(entry));
  return first;
}

// True: something was done.
bool Completions::reap() {
  bool progress = false;
  for (auto it = queues_.begin(); it != queues_.end();) {
    std::deque<Entry>& queue = it->second;
    while (!queue.empty()) {
      const CUresult result = probe(queue.front());
      if (result == CUDA_ERROR_NOT_READY) break;
      const Entry entry = std::move(queue.front());
      queue.pop_front();
      if (entry.pooled) events_.give(entry.stream->context, entry.event);
      entry.done(result);
      progress = true;
    }
    it = queue.empty() ? queues_.erase(it) : std::next(it);
  }
  return progress;
}

void Completions::work() {
  pthread_setname_np(pthread_self(), "completions");
  prctl(PR_SET_TIMERSLACK, 1'000, 0, 0, 0);  // ns: a nap of the usual slack is five times as long as was asked for
  auto last = Clock::now();
  while (!stop_) {
    const uint32_t seen = arrivals_.load(std::memory_order_acquire);
    const bool first = collect();
    const auto now = Clock::now();
    if (reap() || first) {
      last = now;
    } else if (now - last < kUnpaused) {
      _mm_pause();
    } else if (queues_.empty() && now - last >= kAwake) {
      arrivals_.wait(seen);
    } else {
      std::this_thread::sleep_for(queues_.empty() ? kIdleNap : kNap);
    }
  }
}

}  // namespace bandsaw::cuda
