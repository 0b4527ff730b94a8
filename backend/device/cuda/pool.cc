#include "backend/device/cuda/pool.h"

#include <algorithm>

namespace bandsaw::cuda {

CudaPool::~CudaPool() {
  if (owned) driver_->cuMemPoolDestroy(handle);
}

uint64_t CudaPool::attribute(CUmemPool_attribute which) const {
  cuuint64_t value = 0;
  return driver_->cuMemPoolGetAttribute(handle, which, &value) == CUDA_SUCCESS ? value : 0;
}

bool CudaPool::settle_locked() {
  bool settled = charge_.resize(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  if (!settled && driver_->cuMemPoolTrimTo(handle, 0) == CUDA_SUCCESS) {
    settled = charge_.resize(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  }
  holds_ = charge_.bytes() != 0;
  return settled;
}

bool CudaPool::settle() {
  std::lock_guard lock(mutex_);
  return settle_locked();
}

CUresult CudaPool::trim(uint64_t keep) {
  std::lock_guard lock(mutex_);
  const CUresult result = driver_->cuMemPoolTrimTo(handle, keep);
  settle_locked();
  return result;
}

CUresult CudaPool::allocate(uint64_t bytes, CUstream stream, uint64_t* address) {
  if (bytes > INT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  const uint64_t reserved = attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  const uint64_t idle = reserved - std::min(reserved, attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  // It grows by this at least: memory that is not the guest's is not asked for.
  if (bytes > idle && !charge_.resize(reserved + (bytes - idle))) {
    settle_locked();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUdeviceptr made = 0;
  const CUresult result = driver_->cuMemAllocFromPoolAsync(&made, bytes, handle, stream);
  const bool settled = settle_locked();
  *address = made;
  if (result != CUDA_SUCCESS || settled) return result;
  driver_->cuMemFreeAsync(made, stream);
  settle_locked();
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool GraphMemory::settle_locked() {
  cuuint64_t reserved = 0;
  driver_->cuDeviceGetGraphMemAttribute(device_, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
  return charge_.resize(reserved);
}

bool GraphMemory::settle() {
  std::lock_guard lock(mutex_);
  return settle_locked();
}

void GraphMemory::trim() {
  std::lock_guard lock(mutex_);
  ++trims_;
  driver_->cuDeviceGraphMemTrim(device_);
  settle_locked();
}

}  // namespace bandsaw::cuda
