// Kernel launches, host functions and stream values as operations.
#pragma once

#include "backend/device/soft/block.h"
#include "backend/device/soft/context.h"
#include "backend/device/soft/engine_meter.h"
#include "backend/device/soft/executor.h"
#include "backend/device/soft/op.h"

namespace bandsaw::soft {

class KernelOp : public StreamOp {
 public:
  KernelOp(SoftContextRef context, LaunchPlan plan, uint64_t grid_id, Executor& executor, DeviceHost* host,
           EngineWork work)
      : StreamOp(std::move(context)),
        priority_(plan.priority),
        depth_(plan.depth),
        by_kernel_(plan.by_kernel),
        plan_(std::move(plan)),
        grid_id_(grid_id),
        executor_(executor),
        host_(host),
        work_(std::move(work)) {}
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler& scheduler) override;
  void drop(CUresult) override { work_.release(); }
  int priority() const { return priority_; }
  uint32_t depth() const { return depth_; }
  bool by_kernel() const { return by_kernel_; }

 private:
  void end(Scheduler& scheduler, CUresult error);
  const int priority_;
  const uint32_t depth_;
  const bool by_kernel_;
  LaunchPlan plan_;
  const uint64_t grid_id_;
  Executor& executor_;
  DeviceHost* const host_;
  EngineWork work_;
  std::shared_ptr<KernelJob> job_;
};

class HostOp : public StreamOp {
 public:
  HostOp(SoftContextRef context, const HostCallback& callback, DeviceHost* host)
      : StreamOp(std::move(context)), callback_(callback), host_(host) {}
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler& scheduler) override;
  void drop(CUresult error) override;

 private:
  enum { kStarting, kWaiting, kEnded };
  const HostCallback callback_;
  DeviceHost* const host_;
  std::atomic<int> state_{kStarting};
};

// A word in device, managed or registered memory; the pointer is checked, but may have gone when it is used.
struct ValueWord {
  void* pointer = nullptr;
  uint32_t bytes = 4;
  bool store(uint64_t value) const;  // false: not mapped
  bool load(uint64_t* value) const;
};

// One of a batch: writes the word, or waits until `condition` holds for it.
struct ValueStep {
  ValueWord word;
  uint64_t value = 0;
  bool wait = true;
  uint32_t condition = CU_STREAM_WAIT_VALUE_GEQ;
};

class WaitValueOp : public StreamOp {
 public:
  WaitValueOp(SoftContextRef context, ValueWord word, uint64_t value, uint32_t condition)
      : WaitValueOp(std::move(context), {{word, value, true, condition}}) {}
  // In this order.
  WaitValueOp(SoftContextRef context, std::vector<ValueStep> steps)
      : StreamOp(std::move(context)), steps_(std::move(steps)) {}
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler&) override { cancelled_ = true; }

 private:
  bool ready(Scheduler& scheduler, CUresult* status);
  const std::vector<ValueStep> steps_;
  size_t next_ = 0;  // used by start(), then by the one who polls
  std::atomic<bool> cancelled_{false};
};

}  // namespace bandsaw::soft
