#include "guest-driver/libcuda/core/shared_memory.h"

#include <cerrno>
#include <cstring>

#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

// The block whose pages overlap [begin, end), or end().
auto overlap(const std::map<uint64_t, SharedBlock>& blocks, uint64_t begin, uint64_t end) {
  auto it = blocks.lower_bound(begin);
  if (it != blocks.end() && it->first < end) return it;
  if (it == blocks.begin()) return blocks.end();
  --it;
  return it->first + it->second.bytes > begin ? it : blocks.end();
}

}  // namespace

// The result for a program whose request for memory failed with this errno. EPIPE also marks the host as lost.
CUresult SharedMemory::result_of(int error) const {
  switch (error) {
    case 0:
      return CUDA_SUCCESS;
    case EPIPE:
      gpu_->set_lost();
      return gpu_->health();
    case ENOTSUP:
      return CUDA_ERROR_NOT_SUPPORTED;
    case EFAULT:
    case EINVAL:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

bool is_shortage(int error) { return error == ENOMEM || error == ENOSPC || error == EMFILE; }

CUresult SharedMemory::allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) {
  if (bytes == 0 || bytes > VGPU_WINDOW_DEVICE_OFFSET) return CUDA_ERROR_OUT_OF_MEMORY;
  if (take_spare(round_to_pages(bytes), flags, block)) return CUDA_SUCCESS;
  int error = transport_->allocate(round_to_pages(bytes), flags, block);
  if (is_shortage(error)) {
    std::unique_lock lock(mutex_);
    const bool more = drop_idle();
    lock.unlock();
    if (more) error = transport_->allocate(round_to_pages(bytes), flags, block);
  }
  if (error) return result_of(error);
  block->memory = this;
  std::lock_guard lock(mutex_);
  blocks_[number(block->address)] = *block;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::release(void* address) {
  SharedBlock block;
  if (!take_out(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  return result_of(transport_->release(block));
}

CUresult SharedMemory::release_idle(void* address) {
  SharedBlock block;
  if (!take_out(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  if (!SpareBlocks::keeps(block)) return result_of(transport_->release(block));
  std::lock_guard lock(mutex_);
  release_all(spares_.put(block));
  return CUDA_SUCCESS;
}

void SharedMemory::drop_spares() {
  std::lock_guard lock(mutex_);
  release_all(spares_.take_all());
}

bool SharedMemory::take_out(void* address, SharedBlock* block) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(number(address));
  if (it == blocks_.end() || pinned_.count(it->first)) return false;
  *block = it->second;
  blocks_.erase(it);
  return true;
}

bool SharedMemory::take_spare(uint64_t bytes, uint32_t flags, SharedBlock* block) {
  {
    std::lock_guard lock(mutex_);
    const auto spare = spares_.take(bytes, flags);
    if (!spare) return false;
    *block = *spare;
    blocks_[number(block->address)] = *block;
  }
  std::memset(block->address, 0, block->bytes);
  return true;
}

// What cannot be released is lost with the host.
void SharedMemory::release_all(const std::vector<SharedBlock>& blocks) {
  for (const SharedBlock& block : blocks) static_cast<void>(result_of(transport_->release(block)));
}

CUresult SharedMemory::pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block) {
  const uint64_t first = number(address);
  if (!address || bytes == 0 || bytes > VGPU_WINDOW_BYTES || first + bytes < first) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t begin = first / kPage * kPage;
  const uint64_t end = round_to_pages(first + bytes);
  std::unique_lock lock(mutex_);  // held over the round trip: two threads may not pin one page
  drop_overlapping(begin, end, lock);
  if (overlaps_block(begin, end)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  void* const pages = reinterpret_cast<void*>(begin);
  int error = transport_->pin(pages, end - begin, flags, block);
  if (is_shortage(error) && drop_idle()) error = transport_->pin(pages, end - begin, flags, block);
  if (error) return result_of(error);
  blocks_[begin] = *block;
  pinned_[begin] = *block;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::back(uint64_t address, uint64_t bytes, SharedBlock* block) {
  std::lock_guard lock(mutex_);
  int error = transport_->back(address, bytes, block);
  if (is_shortage(error) && drop_idle()) error = transport_->back(address, bytes, block);
  if (error) return result_of(error);
  block->memory = this;
  blocks_[address] = *block;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::unback(const SharedBlock& block) {
  std::lock_guard lock(mutex_);
  blocks_.erase(number(block.address));
  return result_of(transport_->unback(block));
}

CUresult SharedMemory::also(const SharedBlock& block) {
  const uint64_t begin = number(block.address);
  std::lock_guard lock(mutex_);
  if (overlaps_block(begin, begin + block.bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  SharedBlock again;
  int error = transport_->also(block, &again);
  if (is_shortage(error) && drop_idle()) error = transport_->also(block, &again);
  if (error) return result_of(error);
  blocks_[begin] = again;
  pinned_[begin] = again;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::share_at(const SharedBlock& block, void* address, uint32_t flags) {
  const uint64_t begin = number(address);
  std::lock_guard lock(mutex_);
  if (overlaps_block(begin, begin + block.bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  SharedBlock again;
  const int error = transport_->share_at(block, address, flags, &again);
  if (error) return result_of(error);
  blocks_[begin] = again;
  pinned_[begin] = again;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::share_file(int file, uint64_t offset, uint64_t bytes, void* address, uint32_t flags) {
  const uint64_t begin = number(address);
  std::unique_lock lock(mutex_);
  drop_overlapping(begin, begin + bytes, lock);
  if (overlaps_block(begin, begin + bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  SharedBlock block;
  const int error = transport_->share_file(file, offset, bytes, address, flags, &block);
  if (error) return result_of(error);
  blocks_[begin] = block;
  pinned_[begin] = block;
  return CUDA_SUCCESS;
}

CUresult SharedMemory::unpin(void* address) {
  std::lock_guard lock(mutex_);
  const auto it = pinned_.find(number(address) / kPage * kPage);
  if (it == pinned_.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const SharedBlock block = it->second;
  blocks_.erase(it->first);
  pinned_.erase(it);
  return result_of(transport_->unpin(block));
}

bool SharedMemory::overlaps_block(uint64_t begin, uint64_t end) const {
  return overlap(blocks_, begin, end) != blocks_.end();
}

bool SharedMemory::find(const void* address, uint64_t bytes, SharedBlock* block) {
  const uint64_t first = number(address);
  if (first + bytes < first) return false;
  std::lock_guard lock(mutex_);
  const auto it = overlap(blocks_, first, first + 1);
  if (it == blocks_.end() || bytes > it->second.bytes - (first - it->first)) return false;
  *block = it->second;
  return true;
}

}  // namespace bandsaw::libcuda
