#include "backend/runner/wire/callbacks.h"

namespace bandsaw::runner {

void CallbackQueue::add(const HostCallback& callback, CUresult status, Done done) {
  std::unique_lock lock(mutex_);
  vgpu_callback message{};
  message.token = ++last_token_;
  message.function = callback.function;
  message.data = callback.data;
  message.stream = callback.stream;
  message.kind = callback.kind;
  message.status = status;
  running_.emplace(message.token, std::move(done));
  begun_.notify_one();
  if (waiting_.empty()) {
    ready_.push_back(message);
    return;
  }
  const wire::NextCallbackAnswer answer = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  answer(CUDA_SUCCESS, message);
}

void CallbackQueue::next(uint64_t finished, wire::NextCallbackAnswer answer) {
  std::unique_lock lock(mutex_);
  Done done;
  if (auto running = running_.extract(finished); !running.empty()) done = std::move(running.mapped());
  std::optional<vgpu_callback> message;
  if (ready_.empty()) {
    waiting_.push_back(answer);
  } else {
    message = ready_.front();
    ready_.pop_front();
  }
  lock.unlock();
  if (done) done(CUDA_SUCCESS);
  if (message) answer(CUDA_SUCCESS, *message);
}

void CallbackQueue::await_running(const std::atomic<bool>& stop) {
  std::unique_lock lock(mutex_);
  begun_.wait(lock, [&] { return !running_.empty() || stop; });
}

void CallbackQueue::wake() {
  const std::lock_guard lock(mutex_);
  begun_.notify_one();
}

}  // namespace bandsaw::runner
