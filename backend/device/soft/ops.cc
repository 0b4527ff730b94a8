#include "backend/device/soft/ops.h"

#include <cstring>

#include "backend/device/soft/fault.h"
#include "backend/device/soft/scheduler.h"
#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

bool KernelOp::start(Scheduler& scheduler, CUresult* status) {
  if (plan_.grid_workspace) std::memset(reinterpret_cast<void*>(plan_.grid_workspace), 0, 256);
  auto self = std::static_pointer_cast<KernelOp>(shared_from_this());
  work_.begin();
  job_ = std::make_shared<KernelJob>(std::move(plan_), grid_id_, [self, &scheduler](uint32_t error) mutable {
    const auto op = std::move(self);  // or it would hold itself by way of the job
    op->end(scheduler, static_cast<CUresult>(error));
  });
  executor_.push(job_);
  return false;
}

// Called from the job, which lives as long as this. Of children the parent's time slice knows before it may end.
void KernelOp::end(Scheduler& scheduler, CUresult error) {
  auto self = std::static_pointer_cast<KernelOp>(shared_from_this());
  const EngineWork slice = work_;
  host_->charge_time(0, work_.end(), 0);
  context()->flush_output();
  if (!error && host_->guard_error() != CUDA_SUCCESS) error = host_->guard_error();
  if (error) scheduler.poison(error);
  if (error || !job_->has_children()) return scheduler.finish(std::move(self), error);
  SoftDevice& device = *job_->plan().device;
  device.run_children(*this, *job_->children(), slice,
                      [self, &scheduler](CUresult result) { scheduler.finish(self, result); });
}

void KernelOp::cancel(Scheduler&) {
  if (job_) executor_.cancel(job_);
}

bool HostOp::start(Scheduler& scheduler, CUresult*) {
  auto self = std::static_pointer_cast<HostOp>(shared_from_this());
  host_->run_callback(callback_, CUDA_SUCCESS, [self, &scheduler](CUresult) {
    if (self->state_.exchange(kEnded) == kWaiting) scheduler.finish(self, CUDA_SUCCESS);
  });
  int starting = kStarting;
  return !state_.compare_exchange_strong(starting, kWaiting);
}

void HostOp::cancel(Scheduler& scheduler) {
  if (state_.exchange(kEnded) == kWaiting) scheduler.finish(shared_from_this(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

// A stream callback hears of the error; a host function is not called.
void HostOp::drop(CUresult error) {
  if (callback_.kind != VGPU_CALLBACK_STREAM || error == CUDA_ERROR_CONTEXT_IS_DESTROYED) return;
  host_->run_callback(callback_, error, [](CUresult) {});
}

namespace {

struct Access {
  const ValueWord* word;
  uint64_t value;
};

template <typename T>
std::atomic_ref<T> word_ref(void* pointer) {
  return std::atomic_ref<T>(*static_cast<T*>(pointer));
}

bool guarded(const ValueWord& word, void (*action)(void*), Access* access) {
  const GuardedRange ranges[2] = {{reinterpret_cast<uint64_t>(word.pointer), word.bytes}, {}};
  uint64_t address = 0;
  if (run_guarded(ranges, action, access, &address)) return true;
  log::error("stream value: illegal address {:#x}", address);
  return false;
}

}  // namespace

bool ValueWord::store(uint64_t value) const {
  Access access{this, value};
  return guarded(
      *this,
      [](void* argument) {
        const auto* what = static_cast<const Access*>(argument);
        if (what->word->bytes == 8) {
          word_ref<uint64_t>(what->word->pointer).store(what->value);
        } else {
          word_ref<uint32_t>(what->word->pointer).store(static_cast<uint32_t>(what->value));
        }
      },
      &access);
}

bool ValueWord::load(uint64_t* value) const {
  Access access{this, 0};
  const bool ok = guarded(
      *this,
      [](void* argument) {
        auto* what = static_cast<Access*>(argument);
        what->value = what->word->bytes == 8 ? word_ref<uint64_t>(what->word->pointer).load()
                                             : word_ref<uint32_t>(what->word->pointer).load();
      },
      &access);
  *value = access.value;
  return ok;
}

static bool holds(const ValueStep& step, uint64_t now) {
  const bool wide = step.word.bytes == 8;
  const uint64_t value = step.value;
  switch (step.condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? static_cast<int64_t>(now - value) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(now) - static_cast<uint32_t>(value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return wide ? now == value : static_cast<uint32_t>(now) == static_cast<uint32_t>(value);
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value & (wide ? ~uint64_t{0} : UINT32_MAX)) != 0;
    default:
      return (~(now | value) & (wide ? ~uint64_t{0} : UINT32_MAX)) != 0;
  }
}

bool WaitValueOp::ready(Scheduler& scheduler, CUresult* status) {
  if (cancelled_) {
    *status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return true;
  }
  for (; next_ < steps_.size(); ++next_) {
    const ValueStep& step = steps_[next_];
    uint64_t now = 0;
    if (!(step.wait ? step.word.load(&now) : step.word.store(step.value))) {
      *status = CUDA_ERROR_ILLEGAL_ADDRESS;
      scheduler.poison(*status);
      return true;
    }
    if (step.wait && !holds(step, now)) return false;
  }
  return true;
}

bool WaitValueOp::start(Scheduler& scheduler, CUresult* status) {
  if (ready(scheduler, status)) return true;
  auto self = std::static_pointer_cast<WaitValueOp>(shared_from_this());
  scheduler.poll({self, [self, &scheduler](CUresult* result) { return self->ready(scheduler, result); }});
  return false;
}

}  // namespace bandsaw::soft
