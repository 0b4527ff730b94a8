// The hardware reaches an event of a program's before it has switched to that program; a kernel only when it has. So
// where others have the engine, a kernel that does nothing goes before the event from which a step is measured.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class TurnKernel {
 public:
  explicit TurnKernel(DriverRef driver) : driver_(std::move(driver)) {}
  ~TurnKernel();
  TurnKernel(const TurnKernel&) = delete;

  // Onto a stream that does not capture, whose context is current. The first call only begins to load it: that takes
  // the driver many milliseconds.
  CUresult put(CUstream stream);

 private:
  void load();

  const DriverRef driver_;
  std::mutex mutex_;
  std::thread loader_;  // guarded by mutex_
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  std::atomic<bool> ready_{false};
};

}  // namespace bandsaw::cuda
