#include "guest-driver/libcuda/api/registered_pages.h"

#include <algorithm>
#include <iterator>

#include "guest-driver/libcuda/api/host_memory.h"
#include "guest-driver/libcuda/api/mapped_file.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// The first entry that lies in these pages or after them, of those that do not overlap, by where they begin.
template <typename Map>
auto first_in(Map& map, Pages pages) {
  auto next = map.upper_bound(pages.begin);
  return next != map.begin() && std::prev(next)->second.end > pages.begin ? std::prev(next) : next;
}

}  // namespace

RegisteredPages& RegisteredPages::get() {
  static RegisteredPages& all = *new RegisteredPages;
  return all;
}

std::vector<Pages> RegisteredPages::gaps(Pages pages) {
  std::vector<Pages> found;
  uint64_t at = pages.begin;
  for (auto piece = first_in(pieces_, pages); piece != pieces_.end() && piece->first < pages.end; ++piece) {
    if (piece->first > at) found.push_back({at, piece->first});
    at = piece->second.end;
  }
  if (at < pages.end) found.push_back({at, pages.end});
  return found;
}

std::vector<Pages> RegisteredPages::used(Pages pages) const {
  std::vector<Pages> runs;
  for (auto next = first_in(registered_, pages); next != registered_.end() && next->first < pages.end; ++next) {
    const Pages part{std::max(next->second.begin, pages.begin), std::min(next->second.end, pages.end)};
    if (!runs.empty() && part.begin <= runs.back().end) {
      runs.back().end = std::max(runs.back().end, part.end);
    } else {
      runs.push_back(part);
    }
  }
  return runs;
}

// Pinned by the kernel where it can; else a file's pages by that file, and private ones by shared pages in their place.
CUresult RegisteredPages::make_known(VirtualGpu& gpu, Pages pages, uint32_t flags) {
  const uint64_t bytes = pages.bytes();
  Piece piece{&gpu, pages.end, flags};
  CUresult result = host_blocks().pin(gpu, pointer(pages.begin), bytes, flags);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    MappedFile file;
    result = file.find(pages.begin, bytes, !(flags & VGPU_REGION_READ_ONLY));
    if (result == CUDA_SUCCESS) {
      result = host_blocks().share_file(gpu, file.pages(), pointer(pages.begin), flags);
    } else if (result == CUDA_ERROR_NOT_FOUND) {
      result = swap_in_shared(gpu, pages.begin, bytes, flags, &piece.swapped);
    }
  }
  if (result == CUDA_SUCCESS) pieces_[pages.begin] = piece;
  return result;
}

CUresult RegisteredPages::forget(Pieces::iterator piece) {
  const auto [begin, known] = *piece;
  const CUresult result =
      known.swapped ? swap_out_shared(begin, known.end - begin, known.swapped) : host_blocks().unpin(pointer(begin));
  if (result == CUDA_SUCCESS) pieces_.erase(piece);
  return result;
}

CUresult RegisteredPages::add(VirtualGpu& gpu, uint64_t address, uint64_t bytes, uint32_t flags, bool* whole) {
  const Pages pages = pages_around(address, bytes);
  std::lock_guard lock(mutex_);
  const auto within = registered_.lower_bound(address);
  if (within != registered_.end() && within->first - address < bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  for (auto piece = first_in(pieces_, pages); piece != pieces_.end() && piece->first < pages.end; ++piece) {
    if ((piece->second.flags & VGPU_REGION_READ_ONLY) && !(flags & VGPU_REGION_READ_ONLY)) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
  }
  const std::vector<Pages> missing = gaps(pages);
  for (size_t i = 0; i < missing.size(); ++i) {
    const CUresult result = make_known(gpu, missing[i], flags);
    if (result == CUDA_SUCCESS) continue;
    while (i-- > 0) static_cast<void>(forget(pieces_.find(missing[i].begin)));
    return result;
  }
  registered_.emplace(address, pages);
  *whole = missing == std::vector{pages};
  return CUDA_SUCCESS;
}

// What others still need of a piece becomes pieces of its own: the rest may get other pages, and is not to be held.
// After an error it can be tried again.
CUresult RegisteredPages::remove(uint64_t address, uint64_t bytes) {
  const Pages pages = pages_around(address, bytes);
  std::lock_guard lock(mutex_);
  if (registered_.erase(address) == 0) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  for (auto piece = first_in(pieces_, pages); piece != pieces_.end() && piece->first < pages.end;) {
    const Pages whole{piece->first, piece->second.end};
    const Piece known = piece->second;
    const std::vector<Pages> kept = used(whole);
    const auto next = std::next(piece);
    if (kept != std::vector{whole}) {
      CUresult result = forget(piece);
      for (size_t i = 0; i < kept.size() && result == CUDA_SUCCESS; ++i) {
        result = make_known(*known.gpu, kept[i], known.flags);
      }
      if (result != CUDA_SUCCESS) {
        registered_.emplace(address, pages);
        return result;
      }
    }
    piece = next;
  }
  return CUDA_SUCCESS;
}

bool RegisteredPages::are_shared(uint64_t address, uint64_t bytes) const {
  const Pages pages = pages_around(address, bytes);
  std::lock_guard lock(mutex_);
  const auto first = first_in(registered_, pages);  // its own, or a neighbour's
  const auto second = first == registered_.end() ? first : std::next(first);
  return second != registered_.end() && second->first < pages.end;
}

}  // namespace bandsaw::libcuda
