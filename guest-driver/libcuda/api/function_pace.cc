#include "guest-driver/libcuda/api/function_pace.h"

#include <chrono>

namespace bandsaw::libcuda {
namespace {

// With the records that come with each, less than a runner looks through for what may go past others (256), and far
// less than the launches that a driver's queue takes.
constexpr uint64_t kAheadMost = 48;
// Without the end of one function. A program may have one that waits for what it does next.
constexpr std::chrono::seconds kLongest{10};

}  // namespace

FunctionPace& FunctionPace::get() {
  static FunctionPace& pace = *new FunctionPace;
  return pace;
}

void FunctionPace::sent() {
  const std::lock_guard lock(mutex_);
  sent_.push_back(work_);
  any_.store(true, std::memory_order_relaxed);
}

void FunctionPace::returned() {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (!sent_.empty()) sent_.pop_front();
  any_.store(!sent_.empty(), std::memory_order_relaxed);
  changed_.notify_all();
}

void FunctionPace::await_turn() {
  if (!any_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  ++work_;
  while (!sent_.empty() && work_ - sent_.front() > kAheadMost) {
    const size_t before = sent_.size();
    const auto any_returned = [&] { return sent_.size() < before; };
    if (!changed_.wait_for(lock, kLongest, any_returned)) sent_.clear();
  }
}

}  // namespace bandsaw::libcuda
