// Threads that wait in the driver for somebody, so that nobody else has to.
//
// Each blocking call has a thread of its own while it lasts: threads of the guest never wait for one another. A thread
// that has finished polls for the next call for a moment, as programs synchronise again and again, then sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bandsaw::cuda {

// Thread-safe.
class Waiter {
 public:
  Waiter() = default;
  ~Waiter();  // waits for the calls under way
  // Runs `call`, which may block, on a thread of this.
  void run(std::function<void()> call);

 private:
  void work();
  bool take(std::function<void()>* call);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;  // guarded by mutex_
  std::vector<std::thread> threads_;         // guarded by mutex_
  size_t free_ = 0;                          // guarded by mutex_: threads that are not in a call
  size_t sleeping_ = 0;                      // guarded by mutex_
  std::atomic<size_t> queued_{0};            // calls_.size(), for those who poll
  bool stop_ = false;                        // guarded by mutex_
};

}  // namespace bandsaw::cuda
