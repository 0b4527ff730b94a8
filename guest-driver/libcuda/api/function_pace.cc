#include "guest-driver/libcuda/api/function_pace.h"

#include <chrono>

namespace bandsaw::libcuda {
namespace {

// Far less than the records that a runner lets wait, and than the launches that a driver's queue takes.
constexpr uint64_t kAheadMost = 256;
constexpr std::chrono::seconds kLongest{1};

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
  const auto near = [this] { return sent_.empty() || work_ - sent_.front() <= kAheadMost; };
  if (!changed_.wait_for(lock, kLongest, near)) sent_.clear();
}

}  // namespace bandsaw::libcuda
