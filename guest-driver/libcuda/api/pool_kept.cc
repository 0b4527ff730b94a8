#include "guest-driver/libcuda/api/pool_kept.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/api/host_file.h"
#include "guest-driver/libcuda/api/managed.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/core/numa.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct KeptPools {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<KeptPool>> of_handle;  // guarded by mutex
  std::atomic<uint64_t> free_blocks{0};                     // of all of them
};

KeptPools& kept_pools() {
  static KeptPools& all = *new KeptPools;
  return all;
}

std::vector<std::shared_ptr<KeptPool>> all_pools() {
  std::vector<std::shared_ptr<KeptPool>> found;
  std::lock_guard lock(kept_pools().mutex);
  for (const auto& [handle, pool] : kept_pools().of_handle) found.push_back(pool);
  return found;
}

void forget_pool(uint64_t handle) {
  std::lock_guard lock(kept_pools().mutex);
  kept_pools().of_handle.erase(handle);
}

// A program that never freed anything of a pool pays for one counter.
void trim_all_pools() {
  if (kept_pools().free_blocks.load(std::memory_order_relaxed) == 0) return;
  for (const auto& pool : all_pools()) pool->trim_to_threshold();
}

CUresult allocate_host(VirtualGpu& gpu, uint64_t bytes, int node, uint64_t* base) {
  const NodePreference preference(node);
  SharedBlock block;
  const CUresult result = host_blocks().allocate(gpu, bytes, &block);
  if (result != CUDA_SUCCESS) return result;
  *base = reinterpret_cast<uint64_t>(block.address);
  prefer_node(*base, bytes, node);
  return CUDA_SUCCESS;
}

bool fits(uint64_t there, uint64_t wanted) { return there >= wanted && there / 2 <= wanted; }

}  // namespace

CUmemLocation PoolPlace::location() const {
  CUmemLocation location{};
  location.type = where;
  location.id = id;
  return location;
}

CUresult find_place(const CUmemLocation* location, CUmemAllocationType type, PoolPlace* place) {
  const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (!location || (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED)) return CUDA_ERROR_INVALID_VALUE;
  *place = {type, location->type, 0};
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      place->id = location->id;
      return check_device(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      place->id = location->id;
      return location->id >= 0 && has_numa_node(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_NONE:
      return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

KeptPool::KeptPool(uint64_t handle, const PoolPlace& place, uint64_t max_bytes, std::unique_ptr<PoolFile> file)
    : handle_(handle), place_(place), max_bytes_(round_to_pages(max_bytes)), file_(std::move(file)) {
  access_.fill(place.managed() ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

CUresult KeptPool::make(Call& call, uint64_t bytes) {
  if (max_bytes_ && (bytes > max_bytes_ || reserved_ > max_bytes_ - bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  block.bytes = bytes;
  const int node = place_.where == CU_MEM_LOCATION_TYPE_HOST_NUMA ? place_.id : kAnyNode;
  const CUresult result = place_.managed() ? allocate_unowned(call, bytes, &block.base)
                          : file_          ? file_->allocate(call.gpu(), bytes, &block.base)
                                           : allocate_host(call.gpu(), bytes, node, &block.base);
  if (result != CUDA_SUCCESS) return result;
  used_.push_front(block);
  reserved_ += bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  return CUDA_SUCCESS;
}

// Of those in which little would be left over the smallest. With `stream` of those freed there, else of those that
// nobody uses any more.
KeptPool::Blocks::iterator KeptPool::find_free(uint64_t bytes, const StreamKey* stream) {
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (!fits(block->bytes, bytes) || (best != free_.end() && best->bytes <= block->bytes)) continue;
    if (stream ? block->freed_on == *stream : is_idle(&*block)) best = block;
  }
  return best;
}

// The block becomes the first of those in use.
CUresult KeptPool::take(Call& call, uint64_t bytes, uint64_t stream) {
  const StreamKey key = work_stream(call, stream).key();
  auto found = find_free(bytes, &key);
  if (found == free_.end() && opportunistic_) found = find_free(bytes, nullptr);
  if (found == free_.end()) return make(call, bytes);
  used_.splice(used_.begin(), free_, found);
  kept_pools().free_blocks.fetch_sub(1);
  return CUDA_SUCCESS;
}

// There is no room. In the order of what was freed on another stream of the device, if the program allows that; else
// what was freed is given back, however long its work takes.
CUresult KeptPool::take_after_waiting(Call& call, uint64_t bytes, uint64_t stream) {
  for (auto block = free_.begin(); block != free_.end() && internal_; ++block) {
    if (block->bytes < bytes || block->idle || !call.is_here(block->event)) continue;
    const CUresult result = wire::stream_wait_event(call, stream, block->event, 0);
    if (result != CUDA_SUCCESS) return result;
    used_.splice(used_.begin(), free_, block);
    kept_pools().free_blocks.fetch_sub(1);
    return CUDA_SUCCESS;
  }
  release(0);
  CUresult result = make(call, bytes);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || free_.empty() || check_may_wait() != CUDA_SUCCESS) return result;
  for (Block& block : free_) {
    if (std::exchange(block.idle, true)) continue;
    Call there(*gpu_of_part(part_of_handle(block.event)));
    static_cast<void>(wire::event_synchronize(there, block.event));
  }
  release(0);
  return make(call, bytes);
}

// The first block of those in use is the program's from now on.
void KeptPool::give(uint64_t bytes, CUdeviceptr* address) {
  Block& block = used_.front();
  block.used = round_to_pages(bytes);
  used_bytes_ += block.used;
  most_used_ = std::max(most_used_, used_bytes_);
  AddressMap::get().add({.base = block.base,
                         .bytes = bytes,
                         .kind = place_.managed() ? RangeKind::kManaged : RangeKind::kHost,
                         .sync_memops = place_.managed(),
                         .flags = place_.managed() ? unsigned{CU_MEM_ATTACH_GLOBAL} : 0,
                         .pool = handle_});
  if (place_.managed()) begin_unowned(block.base, bytes, place_.location());
  *address = block.base;
}

CUresult KeptPool::allocate(Call& call, uint64_t bytes, uint64_t stream, CUdeviceptr* address) {
  if (file_ && file_->imported()) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > VGPU_WINDOW_PART_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = round_to_pages(bytes);
  std::lock_guard lock(mutex_);
  CUresult result = take(call, rounded, stream);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) result = take_after_waiting(call, rounded, stream);
  if (result == CUDA_SUCCESS) give(bytes, address);
  return result;
}

CUresult KeptPool::map(Call& call, const FileRange& range, uint64_t bytes, CUdeviceptr* address) {
  if (!file_ || !file_->imported() || !bytes || bytes > range.bytes) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  block.bytes = range.bytes;
  const CUresult result = file_->map(call.gpu(), range, &block.base);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  used_.push_front(block);
  reserved_ += block.bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  give(bytes, address);
  return CUDA_SUCCESS;
}

// Puts the block's event behind what the stream has.
CUresult KeptPool::mark(Call& call, Block* block, uint64_t stream) {
  if (const StreamRecord* const record = streams().find(stream)) call.set_context(record->context->handle);
  if (block->event && block->context != call.context()) {
    Call there(*gpu_of_part(part_of_handle(block->event)));
    static_cast<void>(wire::event_destroy(there, std::exchange(block->event, 0)));  // gone already with its context?
  }
  CUresult result = CUDA_SUCCESS;
  if (!block->event) {
    result = wire::event_create(call, CU_EVENT_DISABLE_TIMING, &block->event);
    block->context = call.context();
  }
  if (result == CUDA_SUCCESS) result = wire::event_record(call, block->event, stream, 0);
  block->freed_on = work_stream(call, stream).key();
  block->idle = false;
  return result;
}

// An event that is not to be found has gone with its context, whose work has ended.
bool KeptPool::is_idle(Block* block) {
  if (block->idle) return true;
  Call there(*gpu_of_part(part_of_handle(block->event)));
  block->idle = wire::event_query(there, block->event) != CUDA_ERROR_NOT_READY;
  return block->idle;
}

KeptPool::Blocks::iterator KeptPool::find_used(uint64_t base) {
  return std::find_if(used_.begin(), used_.end(), [base](const Block& block) { return block.base == base; });
}

void KeptPool::freed(Blocks::iterator block) {
  used_bytes_ -= block->used;
  free_.splice(free_.end(), used_, block);
  kept_pools().free_blocks.fetch_add(1);
}

CUresult KeptPool::free(Call& call, const Range& range, uint64_t stream) {
  std::lock_guard lock(mutex_);
  const auto block = find_used(range.base);
  if (block == used_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = mark(call, &*block, stream);
  if (result != CUDA_SUCCESS) return result;
  if (place_.managed()) forget_advice(range);
  AddressMap::get().forget(range);
  freed(block);
  return CUDA_SUCCESS;
}

CUresult KeptPool::free_now(const Range& range) {
  std::lock_guard lock(mutex_);
  const auto block = find_used(range.base);
  if (block == used_.end()) return CUDA_ERROR_INVALID_VALUE;
  block->freed_on = {};
  block->idle = true;
  if (place_.managed()) forget_advice(range);
  AddressMap::get().forget(range);
  freed(block);
  return CUDA_SUCCESS;
}

void KeptPool::release(uint64_t keep) {
  for (auto block = free_.begin(); block != free_.end() && reserved_ > keep;) {
    if (!is_idle(&*block)) {
      ++block;
      continue;
    }
    if (block->event) {
      Call there(*gpu_of_part(part_of_handle(block->event)));
      static_cast<void>(wire::event_destroy(there, block->event));
    }
    // Fails only when the host is gone, and then there is nothing to give back.
    static_cast<void>(place_.managed() ? release_unowned(block->base)
                      : file_          ? file_->release(block->base)
                                       : host_blocks().release_idle(block->base));
    reserved_ -= block->bytes;
    block = free_.erase(block);
    kept_pools().free_blocks.fetch_sub(1);
  }
}

void KeptPool::trim(uint64_t keep) {
  std::lock_guard lock(mutex_);
  release(keep);
}

void KeptPool::trim_to_threshold() {
  std::unique_lock lock(mutex_);
  release(abandoned_ ? 0 : threshold_);
  if (!abandoned_ || !used_.empty() || !free_.empty()) return;
  lock.unlock();
  forget_pool(handle_);
}

bool KeptPool::abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  release(0);
  return used_.empty() && free_.empty();
}

std::optional<uint64_t> KeptPool::attribute(CUmemPool_attribute attribute) {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return follow_events_;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return opportunistic_;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return internal_;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return threshold_;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return reserved_;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return most_reserved_;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return used_bytes_;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return most_used_;
    default:
      return std::nullopt;
  }
}

bool KeptPool::set_attribute(CUmemPool_attribute attribute, uint64_t value) {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_events_ = value;
      return true;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      opportunistic_ = value;
      return true;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      internal_ = value;
      return true;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = value;
      return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      most_reserved_ = reserved_;
      return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      most_used_ = used_bytes_;
      return true;
    default:
      return false;
  }
}

CUmemAccess_flags KeptPool::access(const VirtualGpu& gpu) {
  std::lock_guard lock(mutex_);
  return access_[gpu.part];
}

void KeptPool::set_access(const VirtualGpu& gpu, CUmemAccess_flags flags) {
  std::lock_guard lock(mutex_);
  access_[gpu.part] = flags;
}

std::shared_ptr<KeptPool> make_kept_pool(uint64_t handle, const PoolPlace& place, uint64_t max_bytes,
                                         std::unique_ptr<PoolFile> file) {
  on_synchronised(trim_all_pools);
  auto pool = std::make_shared<KeptPool>(handle, place, max_bytes, std::move(file));
  std::lock_guard lock(kept_pools().mutex);
  kept_pools().of_handle[handle] = pool;
  return pool;
}

std::shared_ptr<KeptPool> kept_pool_of(const Range& range) {
  if (!range.pool || range.on_device()) return nullptr;
  std::lock_guard lock(kept_pools().mutex);
  const auto found = kept_pools().of_handle.find(range.pool);
  return found == kept_pools().of_handle.end() ? nullptr : found->second;
}

void abandon_kept_pool(uint64_t handle) {
  std::shared_ptr<KeptPool> pool;
  {
    std::lock_guard lock(kept_pools().mutex);
    const auto found = kept_pools().of_handle.find(handle);
    if (found != kept_pools().of_handle.end()) pool = found->second;
  }
  if (pool && pool->abandon()) forget_pool(handle);
}

}  // namespace bandsaw::libcuda
