// Tells when work on streams is done, without a blocked thread for each piece: an event after it, and one thread that
// looks at the oldest event of every stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

// Thread-safe.
class Completions {
 public:
  explicit Completions(DriverRef driver) : driver_(std::move(driver)) {}
  ~Completions();

  // Calls `done` (from this thread's own) when all that was put on the stream before is done, with its error if it
  // failed. The stream's context must be current. An error means that `done` is not called.
  CUresult after(const std::shared_ptr<CudaStream>& stream, Done done);

 private:
  struct Entry {
    CUevent event;
    CudaContextRef context;
    Done done;
  };
  struct Queue {
    std::shared_ptr<CudaStream> stream;  // alive while work on it is waited for
    std::deque<Entry> entries;
  };

  CUresult take_event(const CudaContextRef& context, CUevent* event);
  void work();
  bool reap();
  bool is_done(const Entry& entry, CUresult* result);

  const DriverRef driver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<CudaStream*, Queue> queues_;                         // guarded by mutex_
  std::unordered_map<CudaContextRef, std::vector<CUevent>> free_events_;  // guarded by mutex_
  bool stop_ = false;                                                     // guarded by mutex_
  std::thread thread_;                                                    // guarded by mutex_ until it runs
};

}  // namespace bandsaw::cuda
