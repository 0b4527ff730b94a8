// Memory pools: allocations in the order of a stream.
#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

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
  auto wrapped = std::make_shared<CudaPool>(driver_, host_, made, true);
  *pool = wrapped;
  settle_pools();  // those that nobody has any more go
  {
    std::lock_guard lock(pool_mutex_);
    pools_.push_back(std::move(wrapped));
  }
  uint64_t threshold = props.release_threshold;
  return check(driver_->cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

CUresult CudaDevice::pool_default(PoolRef* pool) {
  *pool = default_pool_;
  return default_pool_ ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CudaDevice::pool_trim(const PoolRef& pool, uint64_t keep_bytes) { return check(as(pool).trim(keep_bytes)); }

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
  const auto from = std::static_pointer_cast<CudaPool>(pool ? pool : default_pool_);
  if (!from) return CUDA_ERROR_NOT_SUPPORTED;
  if (guarded_) return guarded_alloc(stream, bytes, address);
  const CUstream handle = as(stream).handle;
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(handle, &error)) {  // a node, whose memory counts when the graph runs
    graphs_allocate_ = true;
    CUdeviceptr made = 0;
    const CUresult result = check(driver_->cuMemAllocFromPoolAsync(&made, bytes, from->handle, handle));
    *address = made;
    return result;
  }
  if (error != CUDA_SUCCESS) return check(error);
  const CUresult result = check(with_room([&] { return from->allocate(bytes, handle, address); }));
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(pool_mutex_);
  pools_hold_ = true;
  pool_memory_[*address] = from;
  return CUDA_SUCCESS;
}

// Guarded kernels reach nothing that lies where the driver likes: it is memory like any other, and ready at once.
CUresult CudaDevice::guarded_alloc(const StreamRef& stream, uint64_t bytes, uint64_t* address) {
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(as(stream).handle, &error)) return CUDA_ERROR_NOT_SUPPORTED;
  return check(with_room([&] { return heap_->allocate(as(stream).context, bytes, address); }));
}

// The driver gives memory back to the GPU when somebody has waited for it. A pool that nobody has any more goes when
// the last of its memory is free.
void CudaDevice::settle_pools() {
  std::vector<CudaPoolRef> gone;
  bool hold = false;
  std::lock_guard lock(pool_mutex_);
  for (CudaPoolRef& pool : pools_) {
    const bool unused = pool->owned && pool.use_count() == 1;
    if (unused) {
      pool->trim(0);
    } else {
      pool->settle();
    }
    hold |= pool->holds_memory();
    if (unused && !pool->holds_memory()) gone.push_back(std::move(pool));
  }
  std::erase(pools_, nullptr);
  pools_hold_ = hold;
}

// As a wait of the driver's own does; settle_pools() follows.
void CudaDevice::trim_pools() {
  std::lock_guard lock(pool_mutex_);
  for (const CudaPoolRef& pool : pools_) pool->trim_to_threshold();
}

// What pools and graphs keep for later may be just what is missing.
void CudaDevice::make_room() {
  {
    std::lock_guard lock(pool_mutex_);
    for (const CudaPoolRef& pool : pools_) pool->trim(0);
  }
  if (graphs_allocate_) graph_memory_->trim();
  heap_->trim();
}

CUresult CudaDevice::free_pooled(uint64_t address, CUstream stream) {
  const CUresult result = check(driver_->cuMemFreeAsync(address, stream));
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(pool_mutex_);
  pool_memory_.erase(address);  // or it is a graph's allocation
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
