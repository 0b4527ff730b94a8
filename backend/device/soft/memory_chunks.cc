// Chunks that change places between this device and host memory. On this device that is other pages of the same kind,
// to which the bytes are copied. The old pages are kept for the next move: new ones would have to be cleared first.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/device/soft/memory_table.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

Memory::Pages Memory::take_spare_pages(uint64_t bytes) {
  const auto found = std::ranges::find(spare_pages_, bytes, &Pages::bytes);
  if (found != spare_pages_.end()) {
    const Pages pages = *found;
    spare_pages_.erase(found);
    host_->swap_book()->keep(-static_cast<int64_t>(bytes));
    return pages;
  }
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (made == MAP_FAILED) return {};
  host_->swap_book()->made(bytes);
  return {made, bytes};
}

void Memory::keep_spare_pages(const Pages& pages) {
  if (host_->swap_book()->keep(static_cast<int64_t>(pages.bytes))) return spare_pages_.push_back(pages);
  ::munmap(pages.at, pages.bytes);
}

void Memory::drop_spare_pages() {
  for (const Pages& pages : spare_pages_) {
    ::munmap(pages.at, pages.bytes);
    host_->swap_book()->keep(-static_cast<int64_t>(pages.bytes));
  }
  spare_pages_.clear();
}

// Other pages with the same bytes at the same address.
bool Memory::rehome(uint64_t address, uint64_t bytes) {
  void* const at = reinterpret_cast<void*>(address);
  const Pages made = take_spare_pages(bytes);
  if (!made.at) return false;
  std::memcpy(made.at, at, bytes);
  // Leaves an empty mapping behind: a hole would be anybody's.
  void* const old = ::mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
  constexpr int kReplace = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (::mremap(made.at, bytes, bytes, kReplace, at) != MAP_FAILED) {
    if (old != MAP_FAILED) keep_spare_pages({old, bytes});
    return true;
  }
  log::error("moving {} bytes of device memory: {}", bytes, std::strerror(errno));
  if (old != MAP_FAILED && ::mremap(old, bytes, bytes, kReplace, at) == MAP_FAILED) {
    log::error("device memory at {:#x} is lost: {}", address, std::strerror(errno));
  }
  ::munmap(made.at, bytes);
  return false;
}

bool Memory::reach_locked(uint64_t address) {
  const auto found = apart_.find(address);
  if (found == apart_.end()) return true;
  if (::mprotect(reinterpret_cast<void*>(address), found->second, PROT_READ | PROT_WRITE) != 0) return false;
  apart_.erase(found);
  return true;
}

CUresult Memory::reach_chunks(const std::vector<uint64_t>& chunks) {
  std::lock_guard lock(mutex_);
  for (const uint64_t address : chunks) {
    if (!reach_locked(address)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult Memory::move_chunk(uint64_t address, bool to_device, bool apart) {
  std::lock_guard lock(mutex_);
  auto after = table_.upper_bound(address);
  if (after == table_.begin()) return CUDA_ERROR_INVALID_VALUE;
  Allocation& allocation = std::prev(after)->second;
  const auto chunk = std::find_if(allocation.chunks.begin(), allocation.chunks.end(),
                                  [&](const swap::Piece& one) { return allocation.address + one.offset == address; });
  if (chunk == allocation.chunks.end() || allocation.file || chunk->on_device == to_device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!reach_locked(address)) return CUDA_ERROR_OUT_OF_MEMORY;
  swap::Book* const book = host_->swap_book();
  if (!book->charge_move(chunk->bytes, to_device)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (rehome(address, chunk->bytes)) {
    chunk->on_device = to_device;
    if (!to_device && apart && ::mprotect(reinterpret_cast<void*>(address), chunk->bytes, PROT_NONE) == 0) {
      apart_[address] = chunk->bytes;
    }
    return CUDA_SUCCESS;
  }
  book->charge_move(chunk->bytes, !to_device);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Memory::move_chunks(const swap::Moves& moves) {
  for (const bool to_device : {false, true}) {
    for (const uint64_t address : to_device ? moves.in : moves.out) {
      const CUresult result = move_chunk(address, to_device, moves.apart);
      if (result == CUDA_ERROR_INVALID_VALUE) continue;
      if (result != CUDA_SUCCESS) return result;
      moves.moved(address, to_device);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
