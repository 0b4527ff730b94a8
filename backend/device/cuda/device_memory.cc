// Device memory, pools, and managed memory (which is the guest's own pages, registered at their own addresses).
#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

CUresult CudaDevice::memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) {
  if (const CUresult result = enter(as(context))) return result;
  return check(with_room([&] { return heap_->allocate(as(context), bytes, address); }));
}

// Freeing waits for all work of the context, as cuMemFree does; only then may the memory be unmapped.
void CudaDevice::memory_free(uint64_t address, Done done) {
  if (address == 0) return finished(CUDA_SUCCESS, done);
  // What is not the heap's is a pool's or a graph's, if it is anything: the driver knows.
  const bool drivers = !heap_->reserves(address);
  if (!drivers && !heap_->begins_at(address)) return finished(CUDA_ERROR_INVALID_VALUE, done);
  const auto free = [this, address, drivers] {
    return drivers ? free_pooled(address, CU_STREAM_LEGACY) : heap_->release(address);
  };
  when_idle(nullptr, free, std::move(done));
}

CUresult CudaDevice::managed_add(const ContextRef&, uint64_t address, uint64_t bytes) {
  // The region was registered when it was mapped; here it only begins to count.
  Charge charge(host_);
  if (const CUresult result = take_share(bytes, &charge)) return result;
  std::lock_guard lock(managed_mutex_);
  return managed_.emplace(address, std::move(charge)).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void CudaDevice::managed_remove(uint64_t address, Done done) {
  const auto remove = [this, address] {
    const CUresult result = driver_->cuCtxSynchronize();
    std::lock_guard lock(managed_mutex_);
    return managed_.erase(address) != 0 ? result : CUDA_ERROR_INVALID_VALUE;
  };
  wait(nullptr, remove, std::move(done));
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
  const CUstream handle = as(stream).handle;
  CUresult error = CUDA_SUCCESS;
  if (captures_active_ > 0 && is_capturing(handle, &error)) {  // a node, whose memory counts when the graph runs
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

// What pools and graphs keep for later may be just what is missing.
void CudaDevice::make_room() {
  {
    std::lock_guard lock(pool_mutex_);
    for (const CudaPoolRef& pool : pools_) pool->trim(0);
  }
  if (graphs_allocate_) graph_memory_->trim();
}

CUresult CudaDevice::take_share(uint64_t bytes, Charge* charge) {
  return with_room([&] { return charge->resize(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; });
}

// The driver keeps local memory for as many threads as the GPU runs at once, of the size that the largest kernel needs.
// What a context has from its beginning is part of kContextBytes.
CUresult CudaDevice::take_local(uint64_t thread_bytes) {
  if (thread_bytes <= kLocalBytes) return CUDA_SUCCESS;
  std::lock_guard lock(local_mutex_);
  const uint64_t bytes = (thread_bytes - kLocalBytes) * resident_threads();
  return bytes > local_charge_.bytes() ? take_share(bytes, &local_charge_) : CUDA_SUCCESS;
}

uint64_t CudaDevice::resident_threads() const {
  int sms = 0, threads = 0;
  driver_->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  driver_->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device_);
  return static_cast<uint64_t>(sms) * static_cast<uint64_t>(threads);
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
