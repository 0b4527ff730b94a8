#include "backend/device/cuda/completions.h"

#include <immintrin.h>
#include <pthread.h>

#include <chrono>

namespace bandsaw::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Polled without a pause so long: the latency of small copies. Later a nap costs little beside the work itself.
constexpr microseconds kSpin{200};
constexpr microseconds kNap{30};

}  // namespace

Completions::~Completions() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Called with mutex_ held.
CUresult Completions::take_event(const CudaContextRef& context, CUevent* event) {
  std::vector<CUevent>& free = free_events_[context];
  if (free.empty()) return driver_->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  *event = free.back();
  free.pop_back();
  return CUDA_SUCCESS;
}

CUresult Completions::after(const std::shared_ptr<CudaStream>& stream, Done done) {
  std::lock_guard lock(mutex_);
  CUevent event = nullptr;
  CUresult result = take_event(stream->context, &event);
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecordWithFlags(event, stream->handle, 0);
  if (result != CUDA_SUCCESS) return result;
  Queue& queue = queues_[stream.get()];
  queue.stream = stream;
  queue.entries.push_back({event, stream->context, std::move(done)});
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_one();
  return CUDA_SUCCESS;
}

bool Completions::is_done(const Entry& entry, CUresult* result) {
  if (!entry.context->alive) {
    *result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return true;
  }
  *result = driver_->cuEventQuery(entry.event);
  return *result != CUDA_ERROR_NOT_READY;
}

// True: something was done.
bool Completions::reap() {
  std::vector<std::pair<Done, CUresult>> finished;
  std::vector<std::shared_ptr<CudaStream>> idle;  // destroyed after the lock
  {
    std::lock_guard lock(mutex_);
    for (auto it = queues_.begin(); it != queues_.end();) {
      Queue& queue = it->second;
      CUresult result = CUDA_SUCCESS;
      while (!queue.entries.empty() && is_done(queue.entries.front(), &result)) {
        Entry& entry = queue.entries.front();
        if (entry.context->alive) free_events_[entry.context].push_back(entry.event);
        finished.emplace_back(std::move(entry.done), result);
        queue.entries.pop_front();
      }
      if (!queue.entries.empty()) {
        ++it;
        continue;
      }
      idle.push_back(std::move(queue.stream));
      it = queues_.erase(it);
    }
    std::erase_if(free_events_, [](const auto& entry) { return !entry.first->alive; });
  }
  for (auto& [done, result] : finished) {
    if (done) done(result);
  }
  return !finished.empty();
}

void Completions::work() {
  pthread_setname_np(pthread_self(), "completions");
  auto last = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (queues_.empty()) {
        changed_.wait(lock, [this] { return stop_ || !queues_.empty(); });
        last = Clock::now();
      }
      if (stop_) return;
    }
    if (reap()) {
      last = Clock::now();
    } else if (Clock::now() - last > kSpin) {
      std::this_thread::sleep_for(kNap);
    } else {
      _mm_pause();
    }
  }
}

}  // namespace bandsaw::cuda
