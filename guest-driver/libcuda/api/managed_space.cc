// Managed memory that moves: what there is, and whose it is.
#include "guest-driver/libcuda/api/managed_space.h"

#include <algorithm>
#include <iterator>

#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Larger allocations have a chunk of their own.
constexpr uint64_t kPooledMost = 16u << 20;

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
  Allocation* const added = allocation.get();
  allocations_[added->base] = std::move(allocation);
  recount(added);
  any_.store(true, std::memory_order_relaxed);
}

CUresult ManagedSpace::allocate(Call& call, uint64_t bytes, unsigned attach, uint64_t context, uint64_t* address) {
  CUresult result = start_threads(call.gpu());
  if (result != CUDA_SUCCESS) return result;
  if (bytes > VGPU_WINDOW_PART_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = round_to_pages(bytes);
  ManagedChunk* chunk = nullptr;
  if (rounded > kPooledMost) {
    if (attach == CU_MEM_ATTACH_GLOBAL) result = check_promise(call, rounded);
    if (result == CUDA_SUCCESS) result = new_chunk(call, rounded, false, context, &chunk);
    if (result == CUDA_SUCCESS) *address = chunk->base;
  } else {
    result = take_room(call, rounded, context, &chunk, address);
  }
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  auto allocation = chunk->room ? std::make_unique<Allocation>(*chunk, *address, rounded)
                                : std::make_unique<Allocation>(*address, rounded);
  allocation->chunk = chunk;
  allocation->default_attach = allocation->attach = attach;
  add(std::move(allocation));
  return CUDA_SUCCESS;
}

CUresult ManagedSpace::release(Call& call, uint64_t base, bool idle) {
  Lock lock(mutex_);
  const auto found = allocations_.find(base);
  if (found == allocations_.end() || found->second->dying) return CUDA_ERROR_NOT_FOUND;
  Allocation* const allocation = found->second.get();
  changed_.wait(lock, [&] { return !allocation->busy; });
  ManagedChunk* const chunk = allocation->chunk;
  allocation->dying = true;
  recount(allocation);
  lock.unlock();
  // Work that uses it ends before the memory is somebody else's; a copy may still read what the host has again.
  const CUresult result = idle ? CUDA_SUCCESS : settle(call, *allocation);
  lock.lock();
  const uint64_t bytes = allocation->bytes, chunk_base = chunk->base;
  const bool pooled = chunk->room != nullptr;
  if (pooled) chunk->pages->take_over(base - chunk_base, allocation->residency);
  allocations_.erase(base);
  const bool goes = !pooled || give_back_room(chunk, base, bytes);
  changed_.notify_all();
  lock.unlock();
  const CUresult given = goes ? drop_chunk(call, chunk_base, pooled) : CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? given : result;
}

CUresult ManagedSpace::attach(uint64_t base, const bandsaw::managed::WorkStream& stream, unsigned flags) {
  std::lock_guard lock(mutex_);
  Allocation* const allocation = find(base);
  if (!allocation) return CUDA_ERROR_NOT_FOUND;
  const bool same =
      allocation->attach == flags && (flags != CU_MEM_ATTACH_SINGLE || allocation->stream.key() == stream.key());
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
void ManagedSpace::stream_ended(const bandsaw::managed::WorkStream& stream) {
  if (!any()) return;
  managed_work().stream_ended(stream);
  std::lock_guard lock(mutex_);
  for (const auto& [base, allocation] : allocations_) {
    if (allocation->attach != CU_MEM_ATTACH_SINGLE || allocation->stream.key() != stream.key()) continue;
    allocation->attach = allocation->default_attach;
    allocation->others_used = true;
    recount(allocation.get());
  }
}

void ManagedSpace::context_ended(uint64_t context) {
  std::vector<std::unique_ptr<ManagedChunk>> gone;
  std::lock_guard changing(backing_mutex_);
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
    allocations_.erase(found);
  }
  for (auto next = chunks_.begin(); next != chunks_.end();) {
    if (next->second->context != context) {
      ++next;
      continue;
    }
    guard_->forget(next->second->base, next->second->bytes);
    gone.push_back(std::move(next->second));
    next = chunks_.erase(next);
  }
  streams_.erase(context);
  lock.unlock();
  if (gone.empty()) return;
  Call call;
  for (const auto& chunk : gone) {
    static_cast<void>(chunk->block.memory->unback(chunk->block));
    release_device(call, chunk.get());
  }
}

}  // namespace bandsaw::libcuda
