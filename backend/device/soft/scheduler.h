// Starts operations when what they follow has ended, and holds the device's sticky error.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <vector>

#include "backend/device/soft/op.h"

namespace bandsaw::soft {

class Scheduler {
 public:
  explicit Scheduler(DeviceHost* host) : host_(host) {}
  ~Scheduler();

  // Guards the order of work: streams' tails, events, captures, graphs.
  std::mutex& mutex() { return mutex_; }

  // With the mutex held. Places `op` after those of `after` that have not ended. True: the caller must start() it
  // once it has let the mutex go.
  [[nodiscard]] bool link(const OpRef& op, std::span<const OpRef> after);
  // With the mutex held. What follows `from`, which has not ended, follows `to` instead.
  void hand_over(StreamOp& from, StreamOp& to);
  // Without the mutex.
  void start(OpRef op);
  void finish(OpRef op, CUresult status);
  // Calls op.cancel() for what runs, of one context or (nullptr) of all.
  void cancel_running(const SoftContext* context);
  // Waits until no operation of the context is left.
  void drain(const SoftContext& context);

  CUresult error() const { return error_.load(std::memory_order_acquire); }
  // The first error stays; everything queued is dropped with it.
  void poison(CUresult error);

  // Asks `ready` again and again until it says true, or false from `wanted`; then finishes the operation.
  struct Poll {
    OpRef op;
    std::function<bool(CUresult* status)> ready;
  };
  void poll(Poll poll);

 private:
  bool begin(const OpRef& op, CUresult* status);
  void complete(const OpRef& op, CUresult status, std::vector<OpRef>* ready);
  void run(std::vector<OpRef> ready);
  void poll_loop();

  DeviceHost* const host_;
  std::mutex mutex_;
  std::condition_variable drained_;
  std::atomic<CUresult> error_{CUDA_SUCCESS};
  std::unordered_set<StreamOp*> running_;

  std::mutex poll_mutex_;
  std::condition_variable poll_wake_;
  std::vector<Poll> polls_;
  bool poll_stop_ = false;
  std::thread poll_thread_;
};

}  // namespace bandsaw::soft
