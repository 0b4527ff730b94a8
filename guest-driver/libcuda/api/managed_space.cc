// Managed memory that moves: what there is, and whose it is.
#include "guest-driver/libcuda/api/managed_space.h"

#include <algorithm>
#include <iterator>

#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Device memory is mapped in units of 2 MiB; larger allocations waste at most half of their last one.
constexpr uint64_t kSmallMost = 1u << 20;
constexpr uint64_t kSharedChunkBytes = 2u << 20;

}  // namespace

ManagedSpace& ManagedSpace::get() {
  static auto* const space = new ManagedSpace;
  return *space;
}

// With the lock, as all of these.
ManagedAllocation* ManagedSpace::find(uint64_t address) {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  Allocation* const allocation = std::prev(next)->second.get();
  return address - allocation->base < allocation->bytes ? allocation : nullptr;
}

ManagedAllocation* ManagedSpace::find_idle(Lock& lock, uint64_t address) {
  Allocation* allocation = find(address);
  while (allocation && allocation->busy) {
    changed_.wait(lock);
    allocation = find(address);
  }
  return allocation;
}

void ManagedSpace::recount(Allocation* allocation) {
  const bool away = allocation->attach != CU_MEM_ATTACH_HOST && !allocation->dying &&
                    (allocation->busy || !allocation->residency.all_on_device());
  if (away ? away_from_device_.insert(allocation).second : away_from_device_.erase(allocation) != 0) {
    away ? away_.fetch_add(1) : away_.fetch_sub(1);
  }
}

void ManagedSpace::set_busy(Allocation* allocation, bool busy) {
  allocation->busy = busy;
  recount(allocation);
  if (!busy) changed_.notify_all();
}

void ManagedSpace::add(std::unique_ptr<Allocation> allocation) {
  std::lock_guard lock(mutex_);
  Allocation* const added = allocation.get();
  allocations_[added->base] = std::move(allocation);
  recount(added);
  any_.store(true, std::memory_order_relaxed);
}

// Our copies go on streams of their own: neither captured nor in the order of the program's.
CUresult ManagedSpace::streams_of(Call& call, uint64_t context) {
  std::lock_guard lock(mutex_);
  Streams& streams = streams_[context];
  const int32_t priority = call.gpu().info.greatest_priority;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t* stream : {&streams.in, &streams.out}) {
    if (result == CUDA_SUCCESS && !*stream) {
      result = wire::stream_create(call, CU_STREAM_NON_BLOCKING, priority, stream);
    }
  }
  return result;
}

CUresult ManagedSpace::new_chunk(Call& call, uint64_t bytes, ManagedChunk** chunk) {
  auto made = std::make_unique<ManagedChunk>();
  made->bytes = bytes;
  made->context = call.context();
  CUresult result = streams_of(call, made->context);
  if (result == CUDA_SUCCESS) result = wire::memory_alloc(call, bytes, &made->base);
  if (result != CUDA_SUCCESS) return result;
  result = call.gpu().memory->back(made->base, bytes, &made->block);
  if (result != CUDA_SUCCESS) {
    wire::memory_free(call, made->base);
    return result;
  }
  *chunk = made.get();
  std::lock_guard lock(mutex_);
  chunks_[made->base] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult ManagedSpace::drop_chunk(Call& call, ManagedChunk* chunk) {
  Lock lock(mutex_);
  const auto gone = chunks_.extract(chunk->base);
  lock.unlock();
  // The device's memory last: from then on another thread may be given the address.
  const CUresult dropped = chunk->block.memory->unback(chunk->block);
  const CUresult result = wire::memory_free(call, chunk->base);
  return result == CUDA_SUCCESS ? dropped : result;
}

CUresult ManagedSpace::allocate(Call& call, uint64_t bytes, unsigned attach, uint64_t* address) {
  CUresult result = start_threads(call.gpu());
  if (result != CUDA_SUCCESS) return result;
  if (bytes > VGPU_WINDOW_PART_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = round_to_pages(bytes);
  ManagedChunk* chunk = nullptr;
  std::optional<uint64_t> base;
  if (rounded > kSmallMost) {
    result = new_chunk(call, rounded, &chunk);
    if (result == CUDA_SUCCESS) base = chunk->base;
  } else {
    std::lock_guard grow(grow_mutex_);
    Lock lock(mutex_);
    for (const auto& [begin, one] : chunks_) {
      if (!one->small || one->context != call.context()) continue;
      base = one->small->take(rounded, kPage);
      chunk = one.get();
      if (base) break;
    }
    lock.unlock();
    if (!base) {
      result = new_chunk(call, kSharedChunkBytes, &chunk);
      if (result != CUDA_SUCCESS) return result;
      auto ranges = std::make_unique<RangeAllocator>(chunk->base, chunk->bytes);
      base = ranges->take(rounded, kPage);
      lock.lock();
      chunk->small = std::move(ranges);
    }
  }
  if (result != CUDA_SUCCESS) return result;
  auto allocation = std::make_unique<Allocation>(*base, rounded);
  allocation->chunk = chunk;
  allocation->default_attach = allocation->attach = attach;
  *address = *base;
  add(std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult ManagedSpace::release(Call& call, uint64_t base) {
  Lock lock(mutex_);
  const auto found = allocations_.find(base);
  if (found == allocations_.end() || found->second->dying) return CUDA_ERROR_NOT_FOUND;
  Allocation* const allocation = found->second.get();
  changed_.wait(lock, [&] { return !allocation->busy; });
  ManagedChunk* const chunk = allocation->chunk;
  allocation->dying = true;
  recount(allocation);
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  if (chunk->small) result = wire::settle(call);  // the pages are somebody else's next
  lock.lock();
  guard_->forget(base, allocation->bytes);
  const uint64_t bytes = allocation->bytes;
  allocations_.erase(base);
  changed_.notify_all();
  lock.unlock();
  if (!chunk->small) return drop_chunk(call, chunk);
  std::lock_guard grow(grow_mutex_);
  chunk->small->give_back(base, bytes);
  if (result != CUDA_SUCCESS || !chunk->small->untouched()) return result;
  return drop_chunk(call, chunk);
}

CUresult ManagedSpace::attach(uint64_t base, uint64_t stream, unsigned flags) {
  std::lock_guard lock(mutex_);
  Allocation* const allocation = find(base);
  if (!allocation) return CUDA_ERROR_NOT_FOUND;
  const bool same = allocation->attach == flags && (flags != CU_MEM_ATTACH_SINGLE || allocation->stream == stream);
  if (same) return CUDA_SUCCESS;
  // Work that came before may still be using it, so the program's next touch waits for all.
  if (allocation->residency.any_on_device() || allocation->busy) allocation->others_used = true;
  allocation->attach = flags;
  allocation->stream = stream;
  recount(allocation);
  return CUDA_SUCCESS;
}

bool ManagedSpace::has(uint64_t base) {
  std::lock_guard lock(mutex_);
  return allocations_.contains(base);
}

// What was attached to it is attached to nothing again.
void ManagedSpace::stream_ended(uint64_t stream) {
  if (!any()) return;
  std::lock_guard lock(mutex_);
  for (const auto& [base, allocation] : allocations_) {
    if (allocation->attach != CU_MEM_ATTACH_SINGLE || allocation->stream != stream) continue;
    allocation->attach = allocation->default_attach;
    allocation->others_used = true;
    recount(allocation.get());
  }
}

void ManagedSpace::context_ended(uint64_t context) {
  std::vector<std::unique_ptr<ManagedChunk>> gone;
  Lock lock(mutex_);
  const auto of_context = [context](const auto& entry) { return entry.second->chunk->context == context; };
  for (;;) {
    const auto found = std::find_if(allocations_.begin(), allocations_.end(), of_context);
    if (found == allocations_.end()) break;
    Allocation* const allocation = found->second.get();
    if (allocation->busy || allocation->dying) {
      changed_.wait(lock);
      continue;
    }
    allocation->dying = true;
    recount(allocation);
    guard_->forget(allocation->base, allocation->bytes);
    allocations_.erase(found);
  }
  for (auto next = chunks_.begin(); next != chunks_.end();) {
    if (next->second->context != context) {
      ++next;
      continue;
    }
    gone.push_back(std::move(next->second));
    next = chunks_.erase(next);
  }
  streams_.erase(context);
  lock.unlock();
  for (const auto& chunk : gone) static_cast<void>(chunk->block.memory->unback(chunk->block));
}

}  // namespace bandsaw::libcuda
