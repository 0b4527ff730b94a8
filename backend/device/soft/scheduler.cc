#include "backend/device/soft/scheduler.h"

#include <pthread.h>

#include <chrono>

#include "backend/device/soft/context.h"

namespace bandsaw::soft {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool RecordOp::start(Scheduler&, CUresult*) {
  nanoseconds_ = now_ns();
  return true;
}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(poll_mutex_);
    poll_stop_ = true;
    poll_wake_.notify_all();
  }
  if (poll_thread_.joinable()) poll_thread_.join();
}

bool Scheduler::link(const OpRef& op, std::span<const OpRef> after) {
  for (const OpRef& before : after) {
    if (!before || before->is_complete()) continue;
    before->followers_.push_back(op);
    ++op->waiting_;
  }
  if (op->context_) ++op->context_->pending;
  return op->waiting_ == 0;
}

void Scheduler::hand_over(StreamOp& from, StreamOp& to) {
  to.followers_.insert(to.followers_.end(), from.followers_.begin(), from.followers_.end());
  from.followers_.clear();
}

void Scheduler::start(OpRef op) {
  CUresult status = CUDA_SUCCESS;
  if (!begin(op, &status)) return;
  std::vector<OpRef> ready;
  complete(op, status, &ready);
  run(std::move(ready));
}

void Scheduler::finish(OpRef op, CUresult status) {
  std::vector<OpRef> ready;
  complete(op, status, &ready);
  run(std::move(ready));
}

// Operations that end at once may free others, which do too: a loop, as chains are long.
void Scheduler::run(std::vector<OpRef> ready) {
  for (size_t i = 0; i < ready.size(); ++i) {
    const OpRef op = std::move(ready[i]);
    CUresult status = CUDA_SUCCESS;
    if (begin(op, &status)) complete(op, status, &ready);
  }
}

bool Scheduler::begin(const OpRef& op, CUresult* status) {
  CUresult refused = error();
  if (!refused && op->context_ && op->context_->dead) refused = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (refused) {
    op->drop(refused);
    *status = refused;
    return true;
  }
  if (op->start(*this, status)) return true;
  std::unique_lock lock(mutex_);
  if (op->is_complete()) return false;
  op->running_ = true;
  running_.insert(op.get());
  // Whoever stopped the device just now may not have seen it.
  const bool late = error() || (op->context_ && op->context_->dead);
  lock.unlock();
  if (late) op->cancel(*this);
  return false;
}

void Scheduler::complete(const OpRef& op, CUresult status, std::vector<OpRef>* ready) {
  if (op->done) {
    op->done(status ? status : error());
    op->done = nullptr;
  }
  std::lock_guard lock(mutex_);
  op->complete_.store(true, std::memory_order_release);
  if (op->running_) running_.erase(op.get());
  for (OpRef& follower : op->followers_) {
    if (--follower->waiting_ == 0) ready->push_back(std::move(follower));
  }
  op->followers_.clear();
  op->followers_.shrink_to_fit();
  if (op->context_ && --op->context_->pending == 0) drained_.notify_all();
}

void Scheduler::cancel_running(const SoftContext* context) {
  std::vector<OpRef> running;
  {
    std::lock_guard lock(mutex_);
    for (StreamOp* op : running_) {
      if (!context || op->context_.get() == context) running.push_back(op->shared_from_this());
    }
  }
  for (const OpRef& op : running) op->cancel(*this);
}

void Scheduler::drain(const SoftContext& context) {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return context.pending == 0; });
}

void Scheduler::poison(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  if (!error_.compare_exchange_strong(none, error)) return;
  host_->poisoned(error);
  cancel_running(nullptr);
}

void Scheduler::poll(Poll poll) {
  std::lock_guard lock(poll_mutex_);
  polls_.push_back(std::move(poll));
  if (!poll_thread_.joinable()) poll_thread_ = std::thread([this] { poll_loop(); });
  poll_wake_.notify_one();
}

void Scheduler::poll_loop() {
  pthread_setname_np(pthread_self(), "soft-poll");
  std::unique_lock lock(poll_mutex_);
  auto pause = std::chrono::microseconds(2);
  while (!poll_stop_) {
    if (polls_.empty()) {
      poll_wake_.wait(lock);
      pause = std::chrono::microseconds(2);
      continue;
    }
    std::vector<Poll> now;
    now.swap(polls_);
    lock.unlock();
    std::vector<Poll> keep;
    for (Poll& poll : now) {
      CUresult status = CUDA_SUCCESS;
      if (poll.ready(&status)) {
        finish(std::move(poll.op), status);
        pause = std::chrono::microseconds(2);
      } else {
        keep.push_back(std::move(poll));
      }
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(200));
    lock.lock();
    for (Poll& poll : keep) polls_.push_back(std::move(poll));
  }
}

}  // namespace bandsaw::soft
