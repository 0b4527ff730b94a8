#include "backend/device/cuda/stacks.h"

#include <algorithm>

#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr size_t kLeastBytes = 16;

}  // namespace

void Stacks::add(const CudaContextRef& context) {
  std::lock_guard lock(mutex_);
  std::erase_if(others_, [](const auto& one) { return one.expired(); });
  others_.push_back(context);
}

void Stacks::give_back(const CudaContextRef& first) {
  std::lock_guard lock(mutex_);
  if (!given_back_.empty()) return;
  give_back_one(first);
  for (const auto& weak : others_) {
    if (const CudaContextRef context = weak.lock()) give_back_one(context);
  }
}

// With mutex_. Where it cannot be, the driver copies it.
void Stacks::give_back_one(const CudaContextRef& context) {
  if (!context->owner().alive) return;
  size_t bytes = 0;
  CUresult result = make_current(*driver_, context->owner());
  if (result == CUDA_SUCCESS) result = driver_->cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE);
  if (result == CUDA_SUCCESS) result = driver_->cuCtxSetLimit(CU_LIMIT_STACK_SIZE, std::min(bytes, kLeastBytes));
  if (result == CUDA_SUCCESS) {
    given_back_.emplace_back(context, bytes);
  } else {
    log::debug("the memory of stacks stays: {}", driver_->describe(result));
  }
}

CUresult Stacks::allow_again() {
  std::lock_guard lock(mutex_);
  CUresult first = CUDA_SUCCESS;
  for (const auto& [context, bytes] : std::exchange(given_back_, {})) {
    CUresult result = make_current(*driver_, context->owner());
    if (result == CUDA_SUCCESS) result = driver_->cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes);
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}

}  // namespace bandsaw::cuda
