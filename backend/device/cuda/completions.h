// Tells when work on streams is done, without a blocked thread for each piece: an event after it, and one thread that
// probes the oldest event of every stream.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/device/cuda/event_pool.h"
#include "backend/device/cuda/objects.h"
#include "backend/device/cuda/spin_lock.h"

namespace bandsaw::cuda {

// Thread-safe.
class Completions {
 public:
  explicit Completions(DriverRef driver);
  ~Completions();

  // Calls `done` (from a thread of this) when all that was put on the stream before is done, with its error if it
  // failed. The stream's context must be current. An error means that `done` is not called.
  CUresult after(const std::shared_ptr<CudaStream>& stream, Done done);
  // As after(), when an event is reached that the caller has recorded on the stream, and keeps until then.
  void when_reached(CUevent event, const std::shared_ptr<CudaStream>& stream, Done done);

 private:
  struct Entry {
    CUevent event = nullptr;
    bool pooled = false;                 // it is of events_
    std::shared_ptr<CudaStream> stream;  // alive while work on it is waited for
    Done done;
  };
  using Queues = std::map<CudaStream*, std::deque<Entry>>;

  void add(Entry entry);
  void work();
  bool collect();
  bool reap();
  CUresult probe(const Entry& entry) const;

  const DriverRef driver_;
  EventPool events_;
  SpinLock lock_;
  std::vector<Entry> incoming_;        // guarded by lock_
  std::atomic<uint32_t> arrivals_{0};  // counts what came in, for the thread to sleep on
  std::atomic<bool> stop_{false};
  Queues queues_;  // the thread's own
  std::thread thread_;
};

}  // namespace bandsaw::cuda
