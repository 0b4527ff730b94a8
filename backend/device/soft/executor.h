// Worker threads that run jobs: a job is one kernel launch or one large copy, cut into tickets.
//
// Workers take jobs in turn (higher priority first, then round robin), so that a long job does not lock out a
// short one. A job no worker got to for a few milliseconds gets a relief worker, which ends when it has nothing
// to do: the system's own time slicing then shares the cores with blocks that never give way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/device/soft/fiber.h"

namespace bandsaw::soft {

class Executor;
class Worker;

// What came of a worker's turn at a job.
enum class Turn {
  kFinished,  // no ticket left and nothing of the job is held by this worker
  kMore,      // the turn was over
  kSpinning,  // everything this worker holds of the job waits for others
};

// One worker's share of one job; used by that worker's thread only.
class Share {
 public:
  virtual ~Share() = default;
  virtual Turn run(Worker& worker) = 0;
  virtual bool holds_work() const = 0;  // work that only this worker can go on with
};

class Job {
 public:
  virtual ~Job() = default;
  virtual std::unique_ptr<Share> share(Worker& worker) = 0;
  // Called once, without locks, when all tickets are done or the job was cancelled and no worker is in it.
  virtual void finished() = 0;

  bool tickets_left() const { return next_.load(std::memory_order_relaxed) < total_; }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed) != 0; }
  void set_cancelled() { cancelled_.store(1, std::memory_order_relaxed); }
  // Takes up to `count` tickets; returns how many, the first in *ticket.
  uint64_t take(uint64_t count, uint64_t* ticket) {
    const uint64_t at = next_.fetch_add(count, std::memory_order_relaxed);
    if (at >= total_) return 0;
    *ticket = at;
    return total_ - at < count ? total_ - at : count;
  }
  uint64_t total() const { return total_; }

 protected:
  // `most_workers`: in it at a time; 0: all that there are.
  Job(uint64_t total, int priority, uint32_t most_workers = 0)
      : total_(total), priority_(priority), most_workers_(most_workers) {}
  std::atomic<uint32_t> cancelled_{0};

 private:
  friend class Executor;
  const uint64_t total_;
  const int priority_;  // lower runs first, as in CUDA
  const uint32_t most_workers_;
  std::atomic<uint64_t> next_{0};
  // Guarded by the executor's mutex.
  uint32_t workers_ = 0;
  bool listed_ = false, ended_ = false;
  uint32_t ticks_waiting_ = 0;
};

class Worker {
 public:
  Worker(Executor& executor, int index, bool relief) : executor_(executor), index_(index), relief_(relief) {}

  int index() const { return index_; }
  // Whether to end this turn: something else may want the worker.
  bool turn_over() const;
  Suspended& thread_point() { return point_; }

  // Fibers, kept for reuse. put_fiber takes back suspended or abandoned ones. nullptr without memory.
  Fiber* get_fiber();
  void put_fiber(Fiber* fiber);
  // Shared memory for one block, kSharedBytes long, kept for reuse. nullptr without memory.
  static constexpr size_t kSharedBytes = 256 * 1024;
  std::byte* get_shared();
  void put_shared(std::byte* shared);
  ~Worker();

  // What the fault handler must know; see fault.h.
  Fiber* current = nullptr;  // the fiber that runs, nullptr on the thread's own stack
  volatile bool in_compiled = false;
  volatile uint32_t fault = 0;  // set before a fiber is abandoned for a fault
  volatile uint64_t fault_address = 0;
  void* volatile fault_warp = nullptr;
  void* volatile running_warp = nullptr;
  uint64_t window_base = 0;  // of the job that runs

 private:
  friend class Executor;
  void main();
  struct Held {
    std::shared_ptr<Job> job;
    std::unique_ptr<Share> share;
  };
  bool run_held();

  Executor& executor_;
  const int index_;
  const bool relief_;
  uint32_t seen_ = 0;
  uint64_t turn_end_ = 0;
  std::vector<Held> held_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  std::vector<std::byte*> free_shared_;
  Suspended point_;
};

class Executor {
 public:
  Executor(int threads, const char* name);
  // Every job must have finished.
  ~Executor();

  void push(std::shared_ptr<Job> job);
  // The job ends as soon as its workers notice; finished() still comes, perhaps from here.
  void cancel(const std::shared_ptr<Job>& job);
  int threads() const { return threads_; }

 private:
  friend class Worker;
  std::shared_ptr<Job> take(const std::vector<Worker::Held>& held, uint32_t* seen);
  void leave(std::shared_ptr<Job> job);
  bool others_wait(const Job& job);
  bool wait(Worker& worker);
  void monitor();
  void start_relief();

  const int threads_;
  const char* const name_;
  std::mutex mutex_;
  std::condition_variable wake_, monitor_wake_;
  std::list<std::shared_ptr<Job>> jobs_;  // with tickets left
  std::atomic<uint32_t> epoch_{0};
  std::atomic<int> spinners_{0};
  int sleepers_ = 0;
  int relief_running_ = 0, relief_made_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
  std::thread monitor_;
  std::condition_variable relief_gone_;
};

}  // namespace bandsaw::soft
