// The streams that a program has made, and waits for all of them that no call of the driver's can do: a wait for a
// context, or for its legacy stream, would end a capture with an error (CUDA C++ Programming Guide, "Prohibited and
// Unhandled Operations"), and lasts as long as kernels that are not the program's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/device/cuda/adaptive_wait.h"
#include "backend/device/cuda/completions.h"
#include "backend/device/cuda/event_pool.h"
#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe. The driver's handle of a stream is there as long as the object, but of one that left while it captured:
// who has one may use the other.
class Streams {
  struct End;

 public:
  using Ends = std::vector<std::shared_ptr<End>>;

  // `completions` outlives this.
  Streams(DriverRef driver, Completions* completions)
      : driver_(std::move(driver)), completions_(completions), events_(driver_, CU_EVENT_DISABLE_TIMING) {}

  void add(const std::shared_ptr<CudaStream>& stream);
  // All that are there, in no order.
  std::vector<std::shared_ptr<CudaStream>> all();
  // The program has it no more: it ends when its work is done and nobody waits for it. Its context is current.
  CUresult leave(const std::shared_ptr<CudaStream>& stream);

  // `begin` has the driver begin a capture on the stream, whose context is current.
  CUresult begin_capture(const std::shared_ptr<CudaStream>& stream, const std::function<CUresult()>& begin);
  // What was captured there has ended, if that stream began it.
  void capture_ended(const CudaStream& stream);
  // Some stream captures.
  bool some_capture() const { return captures_.load(std::memory_order_relaxed) != 0; }
  // The context is about to go, with what its streams capture: until the lock does, nobody waits for any stream.
  std::unique_lock<std::mutex> context_goes(const CudaContext& context);
  // Held by whoever makes another stream join a capture.
  std::unique_lock<std::mutex> lock_captures() { return std::unique_lock(captures_mutex_); }

  // Waits for all that was put on streams which do not capture, and on the context's legacy stream. Blocks. The context
  // is current, before and after.
  CUresult settle(const CudaContextRef& context);

  // The ends of what is on these streams of the context, which is current, now: what comes later is not waited for.
  // None: some stream captures, or the driver will not.
  Ends ends_of(const CudaContextRef& context, std::span<const CUstream> streams);
  // Blocks.
  CUresult wait(const Ends& ends, AdaptiveWait* waiting) const;

 private:
  // Of the work that a stream had; its event is kept for others when nobody waits any more.
  struct End {
    End(EventPool* pool, CudaContextRef in) : events(pool), context(std::move(in)) {}
    ~End() {
      if (event) events->give(context, event);
    }
    EventPool* const events;
    const CudaContextRef context;
    CUevent event = nullptr;
  };
  using EndRef = std::shared_ptr<End>;

  bool captures(CUstream stream) const;
  void forget_capture(const CudaStream& stream);
  bool legacy_is_implied(const CudaContextRef& context);
  void note_legacy_end(const CudaStream& stream);
  CUresult put(CUstream stream, const CudaContextRef& context, Ends* ends);
  CUresult put_on_all(const CudaContextRef& context, Ends* ends);
  CUresult wait(const End& end, AdaptiveWait* waiting) const;

  const DriverRef driver_;
  Completions* const completions_;
  EventPool events_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<CudaStream>> streams_;  // guarded by mutex_: some may have gone
  size_t most_ = 64;                                // guarded by mutex_: then they are swept
  std::mutex captures_mutex_;                       // taken before mutex_
  // Those that began a capture, and the ids of their contexts; guarded by captures_mutex_.
  std::map<const CudaStream*, uint64_t> began_;
  std::atomic<size_t> captures_{0};  // their number
  // By the context's id: the end of its legacy stream's work when one that it waits for last began to capture. Guarded
  // by captures_mutex_.
  std::map<uint64_t, EndRef> before_captures_;
};

}  // namespace bandsaw::cuda
