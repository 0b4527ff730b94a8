// Contexts and their limits.
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

std::vector<SoftContextRef> SoftDevice::contexts() {
  std::vector<SoftContextRef> alive;
  std::lock_guard lock(contexts_mutex_);
  for (const auto& weak : contexts_) {
    SoftContextRef context = weak.lock();
    if (context && !context->dead) alive.push_back(std::move(context));
  }
  return alive;
}

CUresult SoftDevice::context_create(uint32_t flags, ContextRef* context) {
  if (const CUresult error = scheduler_.error()) return error;
  auto made = std::make_shared<SoftContext>(memory_, host_, flags);
  const auto charge = [&] { return made->charge() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; };
  if (const CUresult refused = with_room(charge)) return refused;
  made->legacy = std::make_shared<SoftStream>(made, next_stream_++, CU_STREAM_DEFAULT, 0, true);
  std::lock_guard lock(contexts_mutex_);
  std::erase_if(contexts_, [](const auto& old) { return old.expired(); });
  contexts_.push_back(made);
  *context = std::move(made);
  return CUDA_SUCCESS;
}

// Running work is stopped, queued work is dropped, then everything the context holds goes.
CUresult SoftDevice::context_destroy(const ContextRef& context) {
  const SoftContextRef dying = as(context);
  if (dying->dead.exchange(true)) return CUDA_ERROR_INVALID_CONTEXT;
  scheduler_.cancel_running(dying.get());
  scheduler_.drain(*dying);
  {
    std::lock_guard lock(scheduler_.mutex());
    dying->legacy.reset();
    dying->streams.clear();
    dying->captures.clear();
    dying->give_back_charge();
  }
  {
    std::lock_guard lock(dying->code_mutex);
    dying->images.clear();
  }
  memory_->release_owner(dying.get());
  return scheduler_.error();
}

CUresult SoftDevice::context_get_limit(const ContextRef& context, CUlimit limit, uint64_t* value) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const Limits& limits = as(context)->limits;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = limits.stack;
      break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = limits.printf_fifo;
      break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = limits.malloc_heap;
      break;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      *value = limits.pending_launches;
      break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      *value = limits.fetch_granularity;
      break;
    case CU_LIMIT_CIG_ENABLED:  // sharing with graphics; cuBLAS offers no algorithm before it knows that there is none
      *value = 0;
      break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      *value = limits.persisting_l2;
      break;
    default:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::context_set_limit(const ContextRef& context, CUlimit limit, uint64_t value) {
  if (const CUresult error = scheduler_.error()) return error;
  std::lock_guard lock(scheduler_.mutex());
  const SoftContextRef alive = as(context);
  Limits& limits = alive->limits;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      if (value > 512 * 1024) return CUDA_ERROR_INVALID_VALUE;
      limits.stack = (value + 15) & ~uint64_t{15};
      break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      std::swap(limits.printf_fifo, value = std::clamp<uint64_t>(value, 4096, 64 << 20));
      if (alive->charge()) break;
      limits.printf_fifo = value;
      return CUDA_ERROR_OUT_OF_MEMORY;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      if (!alive->heap.set_limit(value)) return CUDA_ERROR_INVALID_VALUE;
      limits.malloc_heap = value;
      break;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      limits.pending_launches = std::clamp<uint64_t>(value, 32, 599186);  // as on an H100
      break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      if (value > 128) return CUDA_ERROR_INVALID_VALUE;
      limits.fetch_granularity = value;
      break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      if (value) return CUDA_ERROR_UNSUPPORTED_LIMIT;  // there is no such cache
      break;
    default:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
