// Threads for calls that take long on the CPU (loading code), so that the record loop goes on meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bandsaw::runner {

// Threads start with the first jobs. The destructor finishes what is queued.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads) : threads_max_(threads) {}
  ~WorkerPool();
  void post(std::function<void()> job);
  // No job waits or is carried out.
  bool idle();

 private:
  void work();

  const unsigned threads_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  unsigned idle_ = 0;                       // guarded by mutex_
  bool stop_ = false;                       // guarded by mutex_
  std::vector<std::thread> threads_;        // guarded by mutex_
};

}  // namespace bandsaw::runner
