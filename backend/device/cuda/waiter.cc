#include "backend/device/cuda/waiter.h"

#include <immintrin.h>
#include <pthread.h>

#include <chrono>

namespace bandsaw::cuda {
namespace {

// A little more than a program takes between two synchronising calls; a sleeping thread costs it some 5 us.
constexpr std::chrono::microseconds kPatience{50};

}  // namespace

Waiter::~Waiter() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Waiter::run(std::function<void()> call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  queued_.store(calls_.size(), std::memory_order_release);
  if (calls_.size() > free_) {
    ++free_;
    threads_.emplace_back([this] { work(); });
  } else if (sleeping_ > 0) {
    changed_.notify_one();
  }
}

// With the patience of one who polls first. False: stop.
bool Waiter::take(std::function<void()>* call) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (queued_.load(std::memory_order_acquire) == 0 && std::chrono::steady_clock::now() < until) _mm_pause();
  std::unique_lock lock(mutex_);
  ++sleeping_;
  changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
  --sleeping_;
  if (calls_.empty()) return false;
  *call = std::move(calls_.front());
  calls_.pop_front();
  queued_.store(calls_.size(), std::memory_order_release);
  --free_;
  return true;
}

void Waiter::work() {
  pthread_setname_np(pthread_self(), "waiter");
  std::function<void()> call;
  while (take(&call)) {
    call();
    call = nullptr;
    std::lock_guard lock(mutex_);
    ++free_;
  }
}

}  // namespace bandsaw::cuda
