// One operation in the device's order of work: it begins when everything it follows has ended.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/device/device.h"

namespace bandsaw::soft {

class Scheduler;
class SoftContext;

class StreamOp : public std::enable_shared_from_this<StreamOp> {
 public:
  explicit StreamOp(std::shared_ptr<SoftContext> context) : context_(std::move(context)) {}
  virtual ~StreamOp() = default;

  // Begins. True: ended already, with *status. False: Scheduler::finish will be called. No lock is held.
  virtual bool start(Scheduler& scheduler, CUresult* status) = 0;
  // The device or context is being stopped while this runs: end soon. No lock is held.
  virtual void cancel(Scheduler& scheduler) {}
  // Called in place of start() when the device has failed or the context is gone.
  virtual void drop(CUresult error) {}

  bool is_complete() const { return complete_.load(std::memory_order_acquire); }

  Done done;  // called when it has ended, before what follows begins; set before it is linked
  const std::shared_ptr<SoftContext>& context() const { return context_; }

 private:
  friend class Scheduler;
  std::shared_ptr<SoftContext> context_;  // may be null
  std::atomic<bool> complete_{false};
  // Guarded by the scheduler's mutex.
  uint32_t waiting_ = 0;  // operations it follows that have not ended
  bool running_ = false;
  std::vector<std::shared_ptr<StreamOp>> followers_;
};

using OpRef = std::shared_ptr<StreamOp>;

// Does something short at its place in the order.
class CallOp : public StreamOp {
 public:
  CallOp(std::shared_ptr<SoftContext> context, std::function<CUresult()> body, bool always = false)
      : StreamOp(std::move(context)), body_(std::move(body)), always_(always) {}
  bool start(Scheduler&, CUresult* status) override {
    if (const auto body = std::exchange(body_, nullptr)) *status = body();
    return true;
  }
  void drop(CUresult) override {
    const auto body = std::exchange(body_, nullptr);  // it may hold what holds this
    if (always_ && body) body();
  }

 private:
  std::function<CUresult()> body_;
  const bool always_;  // also when the device has failed
};

// The time at which everything before it had ended.
class RecordOp : public StreamOp {
 public:
  using StreamOp::StreamOp;
  bool start(Scheduler&, CUresult* status) override;
  int64_t nanoseconds() const { return nanoseconds_; }  // of the steady clock; valid once complete
  // As if it had ended then.
  void set_ended(int64_t nanoseconds) { nanoseconds_ = nanoseconds; }

 private:
  int64_t nanoseconds_ = 0;
};

int64_t now_ns();

}  // namespace bandsaw::soft
