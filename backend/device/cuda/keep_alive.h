// The hardware ends a process's time slice as soon as it has nothing on the engine. A program that waits for each of
// many short steps would so lose the engine once a step, for a time slice of everybody else. A kernel of one thread,
// which does nothing, keeps it while the program pauses.
//
// Measured on an H200: a kernel that runs is not enough. Once it has begun, its channel has nothing more for the
// engine, and what comes then has the engine with the next time slice only. So there is always another one queued
// behind it, which waits for its end.
//
// Beside a program's work it takes the place of a block: kernels that fill the GPU take a tenth longer, such whose
// blocks need all shared memory of an SM up to twice as long. Behind the work it begins when that ends, and ends as
// soon as there is another that comes behind what was issued since: for some 15 us it is beside a kernel, or 0.1 ms
// once others give the engine back. Where kernels are as short as that, the engine is lost now and then.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/pinned.h"
#include "backend/device/keep.h"

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
  // It comes behind the program's work, and is to be told of it.
  bool follows() const { return follows_.load(std::memory_order_relaxed); }
  // A kernel or a graph has been put on the stream.
  void work_goes_on(const std::shared_ptr<CudaStream>& stream);
  // Some has come since it came behind the work last.
  bool has_work() const { return issued_.load(std::memory_order_acquire) != 0; }
  // What comes next on the stream leaves the compute engine to others, such as a copy. The context is current, and
  // nothing captures.
  void work_ends(const CudaStream& stream);
  void legacy_ends();  // as work_ends of the legacy stream, if that has any
  // The stream is about to be destroyed.
  void forget(const CudaStream& stream);
  // follow() has something to do: what it has put behind the program's work runs already, and there is more work.
  bool wants_to_follow() const { return has_work() && has_begun(); }
  // It has to do so before more is issued, to be beside little of it.
  bool is_late() const {
    const uint32_t issued = issued_.load(std::memory_order_relaxed);
    return (issued >= kManyIssued || (issued != 0 && waited_.load(std::memory_order_relaxed))) && wants_to_follow();
  }
  // The program has waited for its work.
  void waited() {
    if (follows()) waited_.store(true, std::memory_order_relaxed);
  }
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
  bool prolong();
  void follow_from_now_on(bool follows);
  bool has_begun() const;
  Issued* find(const CudaStream& stream);
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
  std::atomic<bool> active_{false};   // written with mutex_, as most of the next
  std::atomic<bool> follows_{false};  // it comes behind the work, and all that it needs is made
  std::atomic<bool> waited_{false};   // the program has, since it did so last
  std::atomic<uint32_t> issued_{0};   // since it came behind the work last
  std::atomic<uint32_t> first_{0};    // the number of its first kernel there; 0: it did not since it began
  bool stops_ = false;                // guarded by mutex_, as all below
  bool failed_ = false;
  std::function<Keep()> how_;
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
