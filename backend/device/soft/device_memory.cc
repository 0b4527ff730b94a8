// Device memory, pools, copies and fills.
#include <algorithm>

#include "backend/device/soft/soft_device.h"
#include "backend/device/soft/transfer.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {

CUresult SoftDevice::memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) {
  if (const CUresult error = scheduler_.error()) return error;
  if (as(context)->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return with_room([&] { return memory_->allocate(bytes, Use::kPlain, context.get(), address); });
}

void SoftDevice::empty_pools() {
  std::lock_guard lock(pools_mutex_);
  for (const auto& pool : pools_) pool->trim(0);
}

// Everything queued in these contexts, and one of them to count the waiting operation in.
std::pair<SoftContextRef, SoftDevice::Ops> SoftDevice::everything(const std::vector<SoftContextRef>& contexts) {
  std::pair<SoftContextRef, Ops> all;
  std::lock_guard lock(scheduler_.mutex());
  for (const SoftContextRef& context : contexts) {
    follow_context(*context, &all.second);
    all.first = context;
  }
  return all;
}

// Runs `body` when all work of the contexts has ended, whatever came of it, then calls `done`.
void SoftDevice::free_when_idle(const std::vector<SoftContextRef>& contexts, std::function<CUresult()> body,
                                Done done) {
  const auto [context, after] = everything(contexts);
  auto result = [body = std::move(body), done = std::move(done)](CUresult status) {
    const CUresult freed = body();
    done(status ? status : freed);
  };
  when_done(context, after, std::move(result));
}

void SoftDevice::memory_free(uint64_t address, Done done) {
  if (const CUresult error = scheduler_.error()) return done(error);
  if (address == 0) return done(CUDA_SUCCESS);
  const auto allocation = memory_->find(address);
  if (!allocation || allocation->use == Use::kPrivate || memory_->set_live(address, false)) {
    return done(CUDA_ERROR_INVALID_VALUE);
  }
  std::vector<SoftContextRef> waiting = contexts();
  if (allocation->use == Use::kPlain) {
    std::erase_if(waiting, [&](const auto& context) { return context.get() != allocation->owner; });
  }
  if (allocation->use == Use::kPool) {
    const auto pool = pool_of(*allocation);
    return free_when_idle(
        waiting,
        [this, pool, address] {
          auto ended = std::make_shared<CallOp>(nullptr, nullptr);
          scheduler_.start(ended);  // its free has run
          if (pool) pool->freed(address, 0, ended);
          return CUDA_SUCCESS;
        },
        std::move(done));
  }
  const bool graph = allocation->use == Use::kGraph;  // its node keeps the address
  free_when_idle(
      waiting,
      [memory = memory_, address, graph] {
        if (!graph) return memory->release(address);
        memory->drop_claim(address);
        return CUDA_SUCCESS;
      },
      std::move(done));
}

CUresult SoftDevice::managed_add(const ContextRef& context, uint64_t address, uint64_t bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  return with_room([&] { return memory_->managed_add(address, bytes); });
}

void SoftDevice::managed_remove(uint64_t address, Done done) {
  // Also on a failed device: the pages are about to go, so nothing may use them any more.
  free_when_idle(
      contexts(), [memory = memory_, address] { return memory->managed_remove(address); }, std::move(done));
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
  if (!allocation || allocation->use == Use::kPrivate || memory_->set_live(address, false)) {
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

// A pointer of this process for a device address: in the window, or host memory that the device sees.
CUresult SoftDevice::resolve(uint64_t address, uint64_t bytes, void** pointer) {
  *pointer = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;
  if (memory_->accessible(address, bytes)) {
    *pointer = reinterpret_cast<void*>(address);
  } else if (address - config_.window_base >= VGPU_WINDOW_BYTES) {
    *pointer = host_->visible_host(address, bytes);
  }
  return *pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SoftDevice::make_copy(const SoftContextRef& context, int priority, const Copy& copy, OpRef* op) {
  Transfer transfer;
  transfer.width = copy.width_bytes;
  transfer.height = copy.height;
  transfer.depth = copy.depth;
  const auto place = [&](const CopyEnd& end, uint64_t* pitch, uint64_t* plane, uint64_t* extent, void** pointer) {
    if (!copy_extent(copy, end, extent)) return CUDA_ERROR_INVALID_VALUE;
    *pitch = end.pitch;
    *plane = end.pitch * (end.height ? end.height : copy.height);
    *pointer = reinterpret_cast<void*>(end.address);
    return end.host ? CUDA_SUCCESS : resolve(end.address, *extent, pointer);
  };
  void *to = nullptr, *from = nullptr;
  if (const CUresult refused = place(copy.destination, &transfer.destination_pitch, &transfer.destination_plane,
                                     &transfer.destination_extent, &to)) {
    return refused;
  }
  if (const CUresult refused =
          place(copy.source, &transfer.source_pitch, &transfer.source_plane, &transfer.source_extent, &from)) {
    return refused;
  }
  transfer.destination = static_cast<std::byte*>(to);
  transfer.source = static_cast<const std::byte*>(from);
  transfer.engine = copy.source.host ? kCopyIn : copy.destination.host ? kCopyOut : kCompute;
  auto work = meters_.work(transfer.engine);
  *op = std::make_shared<TransferOp>(context, transfer, copies_, host_, priority, std::move(work));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::make_fill(const SoftContextRef& context, int priority, const vgpu_fill& fill, OpRef* op) {
  const uint32_t size = fill.element_bytes;
  if (size != 1 && size != 2 && size != 4) return CUDA_ERROR_INVALID_VALUE;
  if (fill.address % size || (fill.height > 1 && fill.pitch % size)) return CUDA_ERROR_INVALID_VALUE;
  Transfer transfer;
  void* to = nullptr;
  if (!fill_extent(fill, &transfer.destination_extent)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = resolve(fill.address, transfer.destination_extent, &to)) return refused;
  transfer.destination = static_cast<std::byte*>(to);
  transfer.width = fill.width * size;
  transfer.height = fill.height;
  transfer.destination_pitch = fill.pitch;
  transfer.destination_plane = fill.pitch * fill.height;
  transfer.element_bytes = size;
  transfer.value = fill.value;
  transfer.engine = kCompute;
  auto work = meters_.work(transfer.engine);
  *op = std::make_shared<TransferOp>(context, transfer, copies_, host_, priority, std::move(work));
  return CUDA_SUCCESS;
}

CUresult SoftDevice::copy(const StreamRef& stream, const Copy& copy, Done done) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  OpRef op;
  if (const CUresult refused = make_copy(on.context, on.priority, copy, &op)) return refused;
  {
    std::unique_lock lock(scheduler_.mutex());
    if (capturing(on)) {
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
      content.copy = copy;
      const CUresult result = capture_node(on, content, nullptr);
      lock.unlock();
      if (!result && done) done(CUDA_SUCCESS);
      return result;
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  op->done = std::move(done);
  return enqueue(on, op);
}

CUresult SoftDevice::fill(const StreamRef& stream, const vgpu_fill& fill, Done done) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftStream& on = as(stream);
  OpRef op;
  if (const CUresult refused = make_fill(on.context, on.priority, fill, &op)) return refused;
  {
    std::unique_lock lock(scheduler_.mutex());
    if (capturing(on)) {
      NodeContent content;
      content.type = CU_GRAPH_NODE_TYPE_MEMSET;
      content.fill = fill;
      const CUresult result = capture_node(on, content, nullptr);
      lock.unlock();
      if (!result && done) done(CUDA_SUCCESS);
      return result;
    }
    if (const CUresult refused = check_capture(on)) return refused;
  }
  op->done = std::move(done);
  return enqueue(on, op);
}

}  // namespace bandsaw::soft
