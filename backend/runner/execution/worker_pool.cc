#include "backend/runner/execution/worker_pool.h"

#include <pthread.h>

namespace bandsaw::runner {

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::post(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  if (jobs_.size() > idle_ && threads_.size() < threads_max_) threads_.emplace_back([this] { work(); });
  changed_.notify_one();
}

bool WorkerPool::idle() {
  std::lock_guard lock(mutex_);
  return jobs_.empty() && idle_ == threads_.size();
}

void WorkerPool::work() {
  pthread_setname_np(pthread_self(), "loader");  // else it is named after the thread that posted the first job
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace bandsaw::runner
