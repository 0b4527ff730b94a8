// The hardware ends a process's time slice as soon as it has nothing on the engine. A program that waits for each of
// many short steps would so lose the engine once a step, for a time slice of everybody else. A kernel of one thread,
// which does nothing, keeps it while the program pauses.
//
// Measured on an H200: a kernel that runs is not enough. Once it has begun, its channel has nothing more for the
// engine, and what comes then has the engine with the next time slice only. So there is always another one queued
// behind it, which waits for its end.
//
// Beside a program's work it takes the place of a block: kernels that fill the GPU take a tenth longer, such whose
// blocks need all shared memory of an SM up to twice as long. So it comes behind the work: it begins when that ends,
// and ends as soon as there is one more that comes behind what was issued since. A program that issues kernels one by
// one has it beside some of them for as long as that takes, some 20 us.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

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
  bool begin(const CudaContextRef& context, std::function<bool()> on, std::function<void()> ended);
  // A kernel or a graph has been put on the stream.
  void work_goes_on(const std::shared_ptr<CudaStream>& stream) {
    if (ready_.load(std::memory_order_relaxed)) note_work(stream);
  }
  // What comes next on the stream leaves the compute engine to others, such as a copy. The context is current, and
  // nothing captures.
  void work_ends(const CudaStream& stream) {
    if (issued_.load(std::memory_order_relaxed) != 0) note_end(stream);
  }
  // The stream is about to be destroyed.
  void forget(const CudaStream& stream);
  // follow() has something to do: what it has put behind the program's work runs already, and there is more work.
  bool wants_to_follow() const { return issued_.load(std::memory_order_acquire) != 0 && has_begun(); }
  // And will run beside much of it.
  bool is_late() const { return issued_.load(std::memory_order_relaxed) >= kManyIssued && wants_to_follow(); }
  // Comes behind the work so far. The context is current, and nothing captures.
  void follow();
  // Its kernels are there, or about to be.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Ends it. Afterwards nothing of it is in a context.
  void end();

 private:
  static constexpr uint32_t kManyIssued = 16;

  struct Issued {
    std::weak_ptr<CudaStream> on;
    CUevent end = nullptr;  // recorded behind it; null: nothing else has come behind it
  };

  void run();
  void finish(std::unique_lock<std::mutex>* lock);
  bool keeps_on();
  bool has_begun() const;
  void note_work(const std::shared_ptr<CudaStream>& stream);
  void note_end(const CudaStream& stream);
  bool record_end(const CudaStream& stream, Issued* issued);
  void forget_work();
  bool wait_for_work();
  bool launch();
  bool prepare();
  void release();

  const DriverRef driver_;
  Pinned* const pinned_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> active_{false};  // written with mutex_, as the next three
  std::atomic<bool> ready_{false};   // active, and all that it needs is made
  std::atomic<uint32_t> issued_{0};  // since it came behind the work last
  std::atomic<uint32_t> first_{0};   // the number of its first kernel there; 0: it did not since it began
  bool stops_ = false;               // guarded by mutex_, as all below
  bool failed_ = false;
  std::function<bool()> on_;
  std::function<void()> ended_;
  CudaContextRef context_;       // of what follows
  std::vector<Issued> streams_;  // that have had what was issued
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;  // that nobody uses
  std::byte* slot_ = nullptr;    // null: there is none yet
  uint32_t launched_ = 0;        // the number of the last kernel
  std::thread thread_;
};

}  // namespace bandsaw::cuda
