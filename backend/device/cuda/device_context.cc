// Contexts: the primary one, which is made ahead, and others; and what they are limited to.
#include <algorithm>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {

CUresult CudaDevice::retain_primary() {
  CUcontext context = nullptr;
  if (const CUresult result = driver_->cuDevicePrimaryCtxRetain(&context, device_)) return result;
  primary_ = std::make_shared<CudaContext>(context, true);
  primary_state_ = Primary::kFresh;
  CUresult result = make_current(*driver_, *primary_);
  if (result == CUDA_SUCCESS && config_.replaceable && !partition_) {
    primary_->stock = std::make_shared<StreamStock>(driver_);
    result = primary_->stock->fill();
  }
  if (result != CUDA_SUCCESS || !partition_) return result;
  result = partition_->make_context(CudaContextRef(primary_), true, &primary_);
  return result == CUDA_SUCCESS ? make_current(*driver_, *primary_) : result;
}

CUresult CudaDevice::context_create(uint32_t flags, ContextRef* context) {
  Charge charge(host_);
  std::unique_lock lock(contexts_mutex_);
  const bool beside = partition_ && primary_state_ == Primary::kTaken;
  const bool ready = primary_state_ == Primary::kFresh;
  if (primary_state_ == Primary::kEnded) {  // it is still there, and so is its charge
    std::lock_guard charge_lock(primary_->mutex);
    charge = std::move(primary_->charge);
  }
  lock.unlock();
  if (!ready) host_->pace_context();
  if (charge.bytes() == 0) {
    if (const CUresult result = take_share(beside ? kGreenContextBytes : kContextBytes, &charge)) return result;
  }
  lock.lock();
  if (primary_state_ == Primary::kEnded) {
    if (const CUresult result = check(renew_primary())) return result;
  }
  if (primary_state_ == Primary::kFresh) {
    primary_state_ = Primary::kTaken;
    *context = primary_;
    std::lock_guard charge_lock(primary_->mutex);
    primary_->charge = std::move(charge);
    return CUDA_SUCCESS;
  }
  if (partition_) {
    CudaContextRef green;
    CUresult result = make_current(*driver_, primary_->owner());
    if (result == CUDA_SUCCESS) result = partition_->make_context(primary_->base, false, &green);
    if (result != CUDA_SUCCESS) return check(result);
    green->charge = std::move(charge);
    is_only_here(green, "contexts beside its first on a GPU");
    *context = std::move(green);
    return CUDA_SUCCESS;
  }
  lock.unlock();
  keep_no_more();
  CUcontext made = nullptr;
  const unsigned wait = CU_CTX_SCHED_SPIN | (flags & (CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX));
  const CUresult result = check(driver_->cuCtxCreate(&made, nullptr, wait, device_));
  if (result != CUDA_SUCCESS) return result;
  forget_current();  // creation made it current
  auto wrapped = std::make_shared<CudaContext>(made, false);
  wrapped->charge = std::move(charge);
  stacks_.add(wrapped);
  is_only_here(wrapped, "contexts beside its first on a GPU");
  *context = std::move(wrapped);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::context_destroy(const ContextRef& context) {
  const CudaContextRef gone = as(context);
  keep_alive_->end();
  CUresult result = enter(gone);
  if (result == CUDA_SUCCESS) result = driver_->cuCtxSynchronize();
  tell_output();
  heap_->release_all(gone);
  const auto no_settling = streams_->context_goes(*gone);
  if (gone->primary) {
    // Programs end with this, and then the process goes at once. What is left in it goes before it is used again.
    std::lock_guard lock(contexts_mutex_);
    if (primary_state_ != Primary::kTaken || gone != primary_) return CUDA_ERROR_INVALID_CONTEXT;
    primary_state_ = Primary::kEnded;  // what it takes of the GPU stays, and so does its charge
    return check(result);
  }
  time_slices_->leave(gone);
  if (!gone->alive.exchange(false)) return CUDA_ERROR_INVALID_CONTEXT;
  forget_current();
  const CUresult destroyed = gone->green ? partition_->destroy(*gone) : driver_->cuCtxDestroy(gone->handle);
  {
    std::lock_guard charge_lock(gone->mutex);
    gone->charge.give_back();
  }
  return check(result == CUDA_SUCCESS ? destroyed : result);
}

// A primary context as a new program finds it. What the process itself keeps in it, the registered memory, is there
// again afterwards. Called with contexts_mutex_ held.
CUresult CudaDevice::renew_primary() {
  if (partition_ && partition_->contexts() > 1) return renew_green();
  if (const CUresult result = make_current(*driver_, *primary_)) return result;
  pinned_->suspend();
  CUresult result = release_primary();
  if (result == CUDA_SUCCESS) result = retain_primary();
  return result == CUDA_SUCCESS ? pinned_->resume() : result;
}

// The driver resets no primary context that a green one lies over. Released by all it goes as well.
CUresult CudaDevice::release_primary() {
  CUresult result = CUDA_SUCCESS;
  if (primary_->green) {
    result = partition_->destroy(*primary_);
  } else {
    result = driver_->cuDevicePrimaryCtxReset(device_);
  }
  primary_->alive = primary_->owner().alive = false;
  forget_current();
  return result == CUDA_SUCCESS ? driver_->cuDevicePrimaryCtxRelease(device_) : result;
}

// Beside others over the same primary context only the green one can be another.
CUresult CudaDevice::renew_green() {
  const CudaContextRef base = primary_->base;
  time_slices_->leave(primary_);
  if (const CUresult result = partition_->destroy(*primary_)) return result;
  if (const CUresult result = make_current(*driver_, *base)) return result;
  primary_state_ = Primary::kFresh;
  return partition_->make_context(base, true, &primary_);
}

CUresult CudaDevice::context_get_limit(const ContextRef& context, CUlimit limit, uint64_t* value) {
  if (const CUresult result = enter(as(context))) return result;
  size_t bytes = 0;
  const CUresult result = driver_->cuCtxGetLimit(&bytes, limit);
  *value = bytes;
  return check(result);
}

CUresult CudaDevice::context_reset_l2(const ContextRef& context) {
  if (const CUresult result = enter(as(context))) return result;
  return check(driver_->cuCtxResetPersistingL2Cache());
}

CUresult CudaDevice::context_set_limit(const ContextRef& context, CUlimit limit, uint64_t value) {
  if (const CUresult result = enter(as(context))) return result;
  const bool is_stack = limit == CU_LIMIT_STACK_SIZE;
  if (!is_stack && limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) {
    return check(driver_->cuCtxSetLimit(limit, value));
  }
  const uint64_t unit = is_stack ? resident_threads() : 1;
  // These are memory, which counts as soon as the driver may take it.
  std::lock_guard lock(as(context)->mutex);
  Charge& charge = as(context)->charge;
  const uint64_t held = charge.bytes();
  size_t before = 0, after = 0;
  uint64_t more = 0;
  CUresult result = driver_->cuCtxGetLimit(&before, limit);
  if (result == CUDA_SUCCESS && value > before) {
    if (__builtin_mul_overflow(value - before, unit, &more) || more > INT64_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    result = take_share(held + more, &charge);
  }
  if (result == CUDA_SUCCESS) result = driver_->cuCtxSetLimit(limit, value);
  if (driver_->cuCtxGetLimit(&after, limit) == CUDA_SUCCESS) {  // the driver rounds
    charge.resize(after >= before ? held + (after - before) * unit : held - std::min(held, (before - after) * unit));
  }
  return check(result);
}

}  // namespace bandsaw::cuda
