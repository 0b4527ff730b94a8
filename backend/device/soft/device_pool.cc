// Memory pools: allocations in the order of a stream.
#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

void SoftDevice::empty_pools() {
  std::lock_guard lock(pools_mutex_);
  for (const auto& pool : pools_) pool->trim(0);
}

CUresult SoftDevice::pool_create(const vgpu_pool_props& props, PoolRef* pool) {
  if (const CUresult error = scheduler_.error()) return error;
  auto made = std::make_shared<SoftPool>(memory_, props);
  std::lock_guard lock(pools_mutex_);
  pools_.push_back(made);
  *pool = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::pool_default(PoolRef* pool) {
  *pool = default_pool_;
  return scheduler_.error();
}

std::shared_ptr<SoftPool> SoftDevice::pool_or_default(const PoolRef& pool) {
  return pool ? std::static_pointer_cast<SoftPool>(pool) : default_pool_;
}

std::shared_ptr<SoftPool> SoftDevice::pool_of(const Allocation& allocation) {
  std::lock_guard lock(pools_mutex_);
  for (const auto& pool : pools_) {
    if (pool.get() == allocation.owner) return pool;
  }
  return nullptr;
}

// At synchronisation points, as CUDA does; also drops destroyed pools whose memory is all free.
void SoftDevice::trim_pools() {
  std::vector<std::shared_ptr<SoftPool>> gone;
  std::lock_guard lock(pools_mutex_);
  for (const auto& pool : pools_) pool->trim_to_threshold();
  std::erase_if(pools_, [&](auto& pool) {
    if (pool.use_count() != 1 || !pool->idle()) return false;
    gone.push_back(std::move(pool));
    return true;
  });
}

CUresult SoftDevice::pool_trim(const PoolRef& pool, uint64_t keep_bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  pool_or_default(pool)->trim(keep_bytes);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::pool_get_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t* value) {
  if (const CUresult error = scheduler_.error()) return error;
  return pool_or_default(pool)->get_attribute(attribute, value);
}

CUresult SoftDevice::pool_set_attribute(const PoolRef& pool, CUmemPool_attribute attribute, uint64_t value) {
  if (const CUresult error = scheduler_.error()) return error;
  return pool_or_default(pool)->set_attribute(attribute, value);
}

CUresult SoftDevice::memory_alloc_async(const StreamRef& stream, const PoolRef& pool, uint64_t bytes,
                                        uint64_t* address) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  if (on.context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) {
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      content.pool = pool;
      content.bytes = bytes;
      return capture_node(on, content, address);
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  return with_room([&] { return pool_or_default(pool)->allocate(bytes, on.id, address); });
}

CUresult SoftDevice::memory_free_async(const StreamRef& stream, uint64_t address) {
  if (const CUresult error = scheduler_.error()) return error;
  if (address == 0) return CUDA_SUCCESS;
  SoftStream& on = as(stream);
  {
    std::lock_guard lock(scheduler_.mutex());
    if (capturing(on)) {
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
      content.address = address;
      return capture_node(on, content, nullptr);
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  const auto allocation = memory_->find(address);
  const bool own = !allocation || allocation->use == Use::kPrivate || allocation->use == Use::kHeap;
  if (own || memory_->set_live(address, false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (allocation->use == Use::kPool) {
    const auto pool = pool_of(*allocation);
    auto op = std::make_shared<CallOp>(on.context, nullptr);
    const CUresult result = enqueue(on, op);
    if (pool) pool->freed(address, on.id, op);
    return result;
  }
  const bool graph = allocation->use == Use::kGraph;
  return enqueue(on, std::make_shared<CallOp>(
                         on.context,
                         [memory = memory_, address, graph] {
                           if (!graph) return memory->release(address);
                           memory->drop_claim(address);
                           return CUDA_SUCCESS;
                         },
                         true));
}

}  // namespace bandsaw::soft
