#include "guest-driver/libcuda/core/host_blocks.h"

#include <fcntl.h>
#include <unistd.h>

#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

uint64_t page_of(const void* address) { return reinterpret_cast<uint64_t>(address) / kPage * kPage; }
uint32_t bit(const VirtualGpu& gpu) { return 1u << gpu.part; }

}  // namespace

HostBlocks& host_blocks() {
  static auto* const all = new HostBlocks;
  return *all;
}

CUresult HostBlocks::show_one(const Entry& entry, VirtualGpu& gpu) {
  const FilePages& pages = entry.pages;
  if (pages.file >= 0) {
    return gpu.memory->share_file(pages.file, pages.offset, pages.bytes, entry.again, entry.again_flags);
  }
  return entry.again ? gpu.memory->share_at(entry.block, entry.again, entry.again_flags)
                     : gpu.memory->also(entry.block);
}

// A device that is gone needs to see nothing.
CUresult HostBlocks::show(Entry* entry, VirtualGpu* gpu) {
  if (gpu == entry->gpu || gpu->lost || (entry->shown & bit(*gpu))) return CUDA_SUCCESS;
  const CUresult result = show_one(*entry, *gpu);
  if (result == CUDA_SUCCESS) entry->shown |= bit(*gpu);
  return gpu->lost ? CUDA_SUCCESS : result;
}

CUresult HostBlocks::show_to_active(Entry* entry) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t part = 0; part < kGpusMax && result == CUDA_SUCCESS; ++part) {
    if (active_ >> part & 1) result = show(entry, gpu_of_part(part));
  }
  return result;
}

CUresult HostBlocks::hide(Entry* entry) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t part = 0; part < kGpusMax; ++part) {
    if (!(entry->shown >> part & 1)) continue;
    VirtualGpu* const gpu = gpu_of_part(part);
    const CUresult one = gpu->memory->unpin(entry->again ? entry->again : entry->block.address);
    if (result == CUDA_SUCCESS && !gpu->lost) result = one;
  }
  entry->shown = 0;
  return result;
}

CUresult HostBlocks::keep(Entry entry, uint64_t key) {
  const CUresult result = show_to_active(&entry);
  if (result == CUDA_SUCCESS) {
    entries_[key] = entry;
  } else {
    static_cast<void>(hide(&entry));
  }
  return result;
}

CUresult HostBlocks::allocate(VirtualGpu& gpu, uint64_t bytes, SharedBlock* block) {
  std::lock_guard lock(mutex_);
  CUresult result = gpu.memory->allocate(bytes, VGPU_REGION_DEVICE_VISIBLE, block);
  if (result != CUDA_SUCCESS) return result;
  result = keep({.gpu = &gpu, .block = *block}, page_of(block->address));
  if (result != CUDA_SUCCESS) static_cast<void>(gpu.memory->release(block->address));
  return result;
}

CUresult HostBlocks::release(uint64_t address) { return forget(address, &SharedMemory::release); }

CUresult HostBlocks::release_idle(uint64_t address) { return forget(address, &SharedMemory::release_idle); }

CUresult HostBlocks::forget(uint64_t address, CUresult (SharedMemory::*then)(void*)) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(address);
  if (found == entries_.end()) return CUDA_ERROR_INVALID_VALUE;
  Entry entry = found->second;
  entries_.erase(found);
  const CUresult hidden = hide(&entry);
  const CUresult result = (entry.gpu->memory->*then)(reinterpret_cast<void*>(address));
  return result == CUDA_SUCCESS ? hidden : result;
}

CUresult HostBlocks::pin(VirtualGpu& gpu, void* address, uint64_t bytes, uint32_t flags) {
  std::lock_guard lock(mutex_);
  SharedBlock block;
  CUresult result = gpu.memory->pin(address, bytes, flags, &block);
  if (result != CUDA_SUCCESS) return result;
  result = keep({.gpu = &gpu, .block = block}, page_of(address));
  if (result != CUDA_SUCCESS) static_cast<void>(gpu.memory->unpin(address));
  return result;
}

CUresult HostBlocks::share_at(VirtualGpu& gpu, const SharedBlock& block, void* address, uint32_t flags) {
  std::lock_guard lock(mutex_);
  CUresult result = gpu.memory->share_at(block, address, flags);
  if (result != CUDA_SUCCESS) return result;
  result = keep({.gpu = &gpu, .block = block, .again = address, .again_flags = flags}, page_of(address));
  if (result != CUDA_SUCCESS) static_cast<void>(gpu.memory->unpin(address));
  return result;
}

CUresult HostBlocks::share_file(VirtualGpu& gpu, const FilePages& pages, void* address, uint32_t flags) {
  CUresult result = pin(gpu, address, pages.bytes, flags);
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  std::lock_guard lock(mutex_);
  Entry entry{.gpu = &gpu, .again = address, .again_flags = flags, .pages = pages};
  entry.pages.file = fcntl(pages.file, F_DUPFD_CLOEXEC, 0);
  if (entry.pages.file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  result = show_one(entry, gpu);
  if (result == CUDA_SUCCESS) {
    result = keep(entry, page_of(address));
    if (result != CUDA_SUCCESS) static_cast<void>(gpu.memory->unpin(address));
  }
  if (result != CUDA_SUCCESS) close(entry.pages.file);
  return result;
}

CUresult HostBlocks::unpin(void* address, SharedMemory** memory) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(page_of(address));
  if (found == entries_.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  Entry entry = found->second;
  entries_.erase(found);
  const CUresult hidden = hide(&entry);
  if (entry.pages.file >= 0) close(entry.pages.file);
  if (memory) *memory = entry.gpu->memory;
  const CUresult result = entry.gpu->memory->unpin(address);
  return result == CUDA_SUCCESS ? hidden : result;
}

CUresult HostBlocks::show_all(VirtualGpu& gpu) {
  std::lock_guard lock(mutex_);
  if (active_ & bit(gpu)) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (auto& [key, entry] : entries_) {
    if (result == CUDA_SUCCESS) result = show(&entry, &gpu);
  }
  if (result == CUDA_SUCCESS) active_ |= bit(gpu);
  return result;
}

}  // namespace bandsaw::libcuda
