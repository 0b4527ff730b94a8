// Device memory, pools, and managed memory (which is the guest's own pages, registered at their own addresses).
#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

CUresult CudaDevice::memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) {
  if (const CUresult result = enter(as(context))) return result;
  return check(heap_->allocate(as(context), bytes, address));
}

// Freeing waits for all work of the context, as cuMemFree does; only then may the memory be unmapped.
void CudaDevice::memory_free(uint64_t address, Done done) {
  if (address == 0) return finished(CUDA_SUCCESS, done);
  bool pooled = false;
  {
    std::lock_guard lock(pool_mutex_);
    pooled = pool_memory_.contains(address);
  }
  if (!pooled && !heap_->begins_at(address)) return finished(CUDA_ERROR_INVALID_VALUE, done);
  const auto free = [this, address, pooled] {
    return pooled ? free_pooled(address, CU_STREAM_LEGACY) : heap_->release(address);
  };
  when_idle(nullptr, free, std::move(done));
}

CUresult CudaDevice::managed_add(const ContextRef&, uint64_t, uint64_t bytes) {
  // The region was registered when it was mapped; here it only begins to count.
  return host_->charge_memory(static_cast<int64_t>(bytes)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void CudaDevice::managed_remove(uint64_t, Done done) {
  wait(
      nullptr, [this] { return driver_->cuCtxSynchronize(); }, std::move(done));
}

CUresult CudaDevice::pool_create(const vgpu_pool_props& props, PoolRef* pool) {
  if (const CUresult result = enter()) return result;
  CUmemPoolProps request{};
  request.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  request.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  request.location.id = device_;
  request.maxSize = props.max_bytes;
  CUmemoryPool made = nullptr;
  CUresult result = driver_->cuMemPoolCreate(&made, &request);
  if (result != CUDA_SUCCESS) return check(result);
  *pool = std::make_shared<CudaPool>(driver_, made, true);
  uint64_t threshold = props.release_threshold;
  return check(driver_->cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

CUresult CudaDevice::pool_default(PoolRef* pool) {
  *pool = default_pool_;
  return default_pool_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CudaDevice::pool_trim(const PoolRef& pool, uint64_t keep_bytes) {
  return check(driver_->cuMemPoolTrimTo(as(pool).handle, keep_bytes));
}

// Three attributes are an int, the others 64 bits (CUDA driver API, CUmemPool_attribute).
CUresult CudaDevice::pool_get_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t* value) {
  *value = 0;  // an int leaves the upper half as it is
  return check(driver_->cuMemPoolGetAttribute(as(pool).handle, attribute, value));
}

CUresult CudaDevice::pool_set_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t value) {
  return check(driver_->cuMemPoolSetAttribute(as(pool).handle, attribute, &value));
}

CUresult CudaDevice::memory_alloc_async(const StreamRef& stream, const PoolRef& pool, uint64_t bytes,
                                        uint64_t* address) {
  if (const CUresult result = enter(stream)) return result;
  const PoolRef from = pool ? pool : default_pool_;
  if (!from) return CUDA_ERROR_NOT_SUPPORTED;
  if (!host_->charge_memory(static_cast<int64_t>(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr made = 0;
  const CUresult result = driver_->cuMemAllocFromPoolAsync(&made, bytes, as(from).handle, as(stream).handle);
  if (result != CUDA_SUCCESS) {
    host_->charge_memory(-static_cast<int64_t>(bytes));
    return check(result);
  }
  *address = made;
  std::lock_guard lock(pool_mutex_);
  pool_memory_[made] = bytes;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::free_pooled(uint64_t address, CUstream stream) {
  const CUresult result = check(driver_->cuMemFreeAsync(address, stream));
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(pool_mutex_);
  const auto known = pool_memory_.find(address);
  if (known == pool_memory_.end()) return CUDA_SUCCESS;  // a graph's allocation
  host_->charge_memory(-static_cast<int64_t>(known->second));
  pool_memory_.erase(known);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::memory_free_async(const StreamRef& stream, uint64_t address) {
  if (const CUresult result = enter(stream)) return result;
  if (!heap_->begins_at(address)) return free_pooled(address, as(stream).handle);
  // Plain memory may be freed in stream order too. It is unmapped once the stream has come that far, and then waits
  // for the context like any other free.
  return completions_->after(std::static_pointer_cast<CudaStream>(stream),
                             [this, address](CUresult) { memory_free(address, nullptr); });
}

}  // namespace bandsaw::cuda
