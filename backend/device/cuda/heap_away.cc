// All of the heap's memory off the device, into pages of this process, and back to the same addresses.
#include <sys/mman.h>

#include <chrono>
#include <utility>

#include "backend/device/cuda/away_copy.h"
#include "backend/device/cuda/heap.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

void Heap::AwayPages::free() {
  if (pages) ::munmap(pages, bytes);
  pages = nullptr;
  bytes = 0;
}

// With mutex_.
std::vector<Heap::Mapping*> Heap::all_on_device() {
  std::vector<Mapping*> all;
  for (const auto& slab : slabs_) all.push_back(&slab->mapping);
  for (auto& [address, allocation] : allocations_) {
    if (allocation.own) all.push_back(&*allocation.own);
    for (Mapping& chunk : allocation.chunks) {
      if (chunk.on_device) all.push_back(&chunk);
    }
  }
  return all;
}

CUresult Heap::copy_away(CUcontext context, bool to_device) {
  std::vector<AwayPiece> pieces;
  auto* pages = static_cast<std::byte*>(away_pages_.pages);
  for (const Mapping* const mapping : away_) {
    add_pieces(mapping->address, pages, mapping->bytes, &pieces);
    pages += mapping->bytes;
  }
  return copy_pieces(*driver_, context, pieces, to_device);
}

std::vector<AwayMemory> Heap::away() const {
  std::lock_guard lock(mutex_);
  std::vector<AwayMemory> all;
  auto* pages = static_cast<std::byte*>(away_pages_.pages);
  for (const Mapping* const mapping : away_) {
    all.push_back({mapping->address, {pages, mapping->bytes}});
    pages += mapping->bytes;
  }
  return all;
}

// What is unmapped has its bytes in away_pages_ and no handle.
CUresult Heap::leave(CUcontext context) {
  spare_maker_.pause();
  std::lock_guard lock(mutex_);
  if (!away_.empty()) return CUDA_SUCCESS;
  drop_spares();
  drop_uncharged();
  away_ = all_on_device();
  for (const Mapping* const mapping : away_) away_pages_.bytes += mapping->bytes;
  if (away_.empty()) return CUDA_SUCCESS;
  const auto give_up = [&](CUresult error) {
    away_.clear();
    away_pages_.free();
    return error;
  };
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const pages = ::mmap(nullptr, away_pages_.bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (pages == MAP_FAILED) {
    away_pages_.bytes = 0;
    return give_up(CUDA_ERROR_OUT_OF_MEMORY);
  }
  away_pages_.pages = pages;
  ::madvise(pages, away_pages_.bytes, MADV_HUGEPAGE);
  const auto begin = std::chrono::steady_clock::now();
  if (const CUresult result = copy_away(context, false)) return give_up(result);
  const auto copied = std::chrono::steady_clock::now();
  for (Mapping* const mapping : away_) {
    CUresult result = unmap_at(mapping->address, mapping->bytes);
    if (result == CUDA_SUCCESS) result = driver_->cuMemRelease(mapping->handle);
    if (result == CUDA_SUCCESS) {
      mapping->handle = 0;
      continue;
    }
    log::error("memory at {:#x} does not leave the device: {}", mapping->address, driver_->describe(result));
    const CUresult back = come_back_locked(context);
    return back == CUDA_SUCCESS ? result : back;
  }
  using Milliseconds = std::chrono::duration<double, std::milli>;
  log::debug("{} bytes have left: copied in {:.1f} ms, unmapped in {:.1f} ms", away_pages_.bytes,
             Milliseconds(copied - begin).count(), Milliseconds(std::chrono::steady_clock::now() - copied).count());
  return CUDA_SUCCESS;
}

CUresult Heap::come_back(CUcontext context) {
  std::unique_lock lock(mutex_);
  const CUresult result = come_back_locked(context);
  const bool prepares = result == CUDA_SUCCESS && wants_spare();
  lock.unlock();
  if (prepares) spare_maker_.go_on();
  return result;
}

CUresult Heap::come_back_locked(CUcontext context) {
  if (away_.empty()) return CUDA_SUCCESS;
  std::vector<Mapping*> mapped;
  CUresult result = CUDA_SUCCESS;
  for (Mapping* const mapping : away_) {
    if (mapping->handle != 0) continue;
    result = map_chunk(mapping);
    if (result != CUDA_SUCCESS) break;
    mapped.push_back(mapping);
  }
  if (result == CUDA_SUCCESS) result = copy_away(context, true);
  if (result != CUDA_SUCCESS) {
    log::error("memory does not return to the device: {}", driver_->describe(result));
    for (Mapping* const mapping : mapped) {
      unmap_at(mapping->address, mapping->bytes);
      driver_->cuMemRelease(mapping->handle);
      mapping->handle = 0;
    }
    return result;
  }
  away_.clear();
  freeing_ = std::jthread([pages = std::exchange(away_pages_, {})]() mutable { pages.free(); });
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::cuda
