// One wait for the GPU, of a thread that asks again and again whether it is over.
#pragma once

#include <thread>
#include <utility>

#include "backend/device/cuda/nap.h"
#include "backend/device/cuda/wait_lengths.h"
#include "backend/device/device_host.h"

namespace bandsaw::cuda {

class AdaptiveWait {
 public:
  using Clock = std::chrono::steady_clock;

  // The wait begins now, maybe on another thread than passes the time.
  AdaptiveWait() = default;
  // As far as the last waits tell, it is awake at the end, and so is who executes calls. Both outlive this.
  AdaptiveWait(WaitLengths* lengths, DeviceHost* host) : lengths_(lengths), host_(host), end_(lengths->next()) {}

  // Passes the time until the caller asks again.
  void pass() {
    const auto now = Clock::now();
    if (naps_since_ == Clock::time_point{}) naps_since_ = now;
    if (!end_.holds(now - since_)) return nap(now - naps_since_);
    if (!std::exchange(told_, true)) host_->expect_calls(since_ + end_.to);
    std::this_thread::yield();
  }
  void over() {
    if (lengths_) lengths_->ended(Clock::now() - since_);
  }

 private:
  Clock::time_point since_ = Clock::now(), naps_since_{};
  WaitLengths* lengths_ = nullptr;
  DeviceHost* host_ = nullptr;
  WaitLengths::Window end_;
  bool told_ = false;  // that it will soon end
};

}  // namespace bandsaw::cuda
