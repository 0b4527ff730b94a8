// The hardware ends a process's time slice as soon as it has nothing on the engine. A program that waits for each of
// many short steps would so lose the engine once a step, for a time slice of everybody else. A kernel of one thread,
// which does nothing, keeps it while the program pauses.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/pinned.h"

namespace bandsaw::cuda {

// Thread-safe. What it puts on the GPU ends by itself within two milliseconds: calls of the driver that wait for the
// whole context wait for that, too.
class KeepAlive {
 public:
  // Both outlive this.
  KeepAlive(DriverRef driver, Pinned* pinned);
  ~KeepAlive();

  // As Device::keep_engine().
  bool begin(const CudaContextRef& context, std::function<bool()> goes_on, std::function<void()> ended);
  // Its kernels are there, or about to be.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Ends it. Afterwards nothing of it is in a context.
  void end();

 private:
  void run();
  void finish(std::unique_lock<std::mutex>* lock);
  bool prolong();
  bool prepare();
  void release();

  const DriverRef driver_;
  Pinned* const pinned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> active_{false};  // written with mutex_
  bool stops_ = false;               // guarded by mutex_, as all below
  bool failed_ = false;
  std::function<bool()> goes_on_;
  std::function<void()> ended_;
  CudaContextRef context_;  // of what follows
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUstream stream_ = nullptr;
  std::byte* slot_ = nullptr;  // null: there is none yet
  uint32_t launched_ = 0;      // the number of the last kernel
  std::thread thread_;
};

}  // namespace bandsaw::cuda
