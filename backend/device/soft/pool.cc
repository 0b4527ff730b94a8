#include "backend/device/soft/pool.h"

#include <algorithm>

#include "backend/device/given.h"

namespace bandsaw::soft {

namespace {

constexpr uint64_t kPoolPage = 4096;
uint64_t whole_pages(uint64_t bytes) { return (bytes + kPoolPage - 1) & ~(kPoolPage - 1); }

}  // namespace

SoftPool::SoftPool(std::shared_ptr<Memory> memory, const vgpu_pool_props& props)
    : memory_(std::move(memory)), max_bytes_(props.max_bytes), threshold_(props.release_threshold) {}

SoftPool::~SoftPool() { memory_->release_owner(this); }

CUresult SoftPool::allocate(uint64_t bytes, uint64_t stream, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > (uint64_t{1} << 48)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t wanted = whole_pages(bytes);
  std::lock_guard lock(mutex_);
  auto best = cached_.end();
  for (auto at = cached_.begin(); at != cached_.end(); ++at) {
    if (at->bytes < wanted || at->bytes > wanted + wanted / 4) continue;
    const bool usable =
        at->free_op->is_complete() ? reuse_.opportunistic || at->stream == stream : at->stream == stream;
    if (usable && (best == cached_.end() || at->bytes < best->bytes)) best = at;
  }
  uint64_t mapped = wanted;
  if (best != cached_.end()) {
    mapped = best->bytes;
    *address = best->address;
    cached_.erase(best);
    memory_->set_live(*address, true);
    if (Given* const given = Given::current()) {
      given->give(*address);
      given->set_value(mapped);
    }
  } else {
    if (max_bytes_ && (wanted > max_bytes_ || reserved_ > max_bytes_ - wanted)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = memory_->allocate(wanted, Use::kPool, this, address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !cached_.empty()) {  // give back what nobody uses, and try again
      std::erase_if(cached_, [this](const Cached& block) {
        if (!block.free_op->is_complete()) return false;
        memory_->release(block.address);
        reserved_ -= block.bytes;
        return true;
      });
      result = memory_->allocate(wanted, Use::kPool, this, address);
    }
    if (result) return result;
    reserved_ += wanted;
    reserved_high_ = std::max(reserved_high_, reserved_);
  }
  used_ += mapped;
  used_high_ = std::max(used_high_, used_);
  return CUDA_SUCCESS;
}

void SoftPool::freed(uint64_t address, uint64_t stream, OpRef op) {
  const auto allocation = memory_->find(address);
  if (!allocation) return;
  std::lock_guard lock(mutex_);
  used_ -= std::min(used_, allocation->bytes);
  cached_.push_back({address, allocation->bytes, stream, std::move(op)});
}

void SoftPool::trim(uint64_t keep) {
  std::lock_guard lock(mutex_);
  std::erase_if(cached_, [&](const Cached& block) {
    if (reserved_ <= keep || !block.free_op->is_complete()) return false;
    memory_->release(block.address);
    reserved_ -= block.bytes;
    return true;
  });
}

void SoftPool::trim_to_threshold() {
  uint64_t keep;
  {
    std::lock_guard lock(mutex_);
    if (cached_.empty()) return;
    keep = threshold_;
  }
  trim(keep);
}

bool SoftPool::idle() {
  std::lock_guard lock(mutex_);
  const auto is_free = [](const Cached& block) { return block.free_op->is_complete(); };
  return used_ == 0 && std::ranges::all_of(cached_, is_free);
}

CUresult SoftPool::get_attribute(CUmemPool_attribute attribute, uint64_t* value) {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *value = reuse_.follow_event;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *value = reuse_.opportunistic;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *value = reuse_.internal_dependencies;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *value = threshold_;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *value = reserved_;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *value = reserved_high_;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *value = used_;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *value = used_high_;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult SoftPool::set_attribute(CUmemPool_attribute attribute, uint64_t value) {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      reuse_.follow_event = value != 0;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      reuse_.opportunistic = value != 0;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_.internal_dependencies = value != 0;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = value;
      break;
    // The high-water marks can only be reset, as in CUDA.
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (value) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = reserved_;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (value) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
