// The hardware ends a process's time slice as soon as it has nothing on the engine. A program that waits for each of
// many short steps would so lose the engine once a step, for a time slice of everybody else. A kernel of one thread,
// which does nothing, keeps it while the program pauses.
//
// Measured on an H200: a kernel that runs is not enough. Once it has begun, its channel has nothing more for the
// engine, and what comes then has the engine with the next time slice only. So there is always another one queued
// behind it, which waits for its end.
//
// Beside a program's work it takes the place of a block: kernels that fill the GPU take a tenth longer, such whose
// blocks need all shared memory of an SM up to twice as long. So it follows the work where it can: it begins when that
// ends, and ends when more has come.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
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
  bool begin(const CudaContextRef& context, std::function<Keep()> how, std::function<void()> ended);
  // follow() is to be called when the program waits for its work.
  bool wants_to_follow() const { return follows_.load(std::memory_order_relaxed) && !is_behind_; }
  // Its kernels begin when what is on these streams has ended, or when the event is reached. The context is current,
  // and nothing captures.
  void follow(const CudaContextRef& context, std::span<const CUstream> streams);
  void follow(const CudaContextRef& context, CUevent event);
  // More work is on the engine: what follows the work before it ends.
  void work_goes_on() {
    if (is_behind_.load(std::memory_order_relaxed)) end_following();
  }
  // Its kernels are there, or about to be.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Ends it. Afterwards nothing of it is in a context.
  void end();

 private:
  void run();
  void finish(std::unique_lock<std::mutex>* lock);
  bool keeps_on();
  bool prolong();
  bool launch();
  bool prepare();
  bool may_follow(const CudaContextRef& context) const;
  void put_behind();
  void end_following();
  void release();

  const DriverRef driver_;
  Pinned* const pinned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> active_{false};     // written with mutex_, as the next two
  std::atomic<bool> follows_{false};    // its kernels come behind the program's work
  std::atomic<bool> is_behind_{false};  // some are, and no work has come since
  bool stops_ = false;                  // guarded by mutex_, as all below
  bool failed_ = false;
  std::function<Keep()> how_;
  std::function<void()> ended_;
  CudaContextRef context_;  // of what follows
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  std::byte* slot_ = nullptr;  // null: there is none yet
  uint32_t launched_ = 0;      // the number of the last kernel
  std::thread thread_;
};

}  // namespace bandsaw::cuda
