// The pin cache: memory that was pinned for a copy stays pinned, because making it known to a GPU takes longer than a
// copy. A buffer that is copied only once costs no more than without a cache: it is unpinned later instead of at once.
//
// The kernel watches each cached pin and marks it stale when the program's addresses get other pages. Cached pins may
// overlap, and the host takes any region that holds the bytes. So a new pin is used only if no overlapping one was
// stale after it was pinned: all pins that hold its addresses and are not stale then hold the same pages there.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

constexpr size_t kCachedMost = 256;
constexpr uint64_t kCachedBytesMost = 8ull << 30;

uint64_t bytes_most() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? std::min(kCachedBytesMost, static_cast<uint64_t>(pages) / 2 * kPage) : 0;
}

bool overlaps(const CachedPin& pin, uint64_t begin, uint64_t end) { return pin.begin() < end && pin.end() > begin; }

}  // namespace

SharedMemory::SharedMemory(VirtualGpu* gpu) : gpu_(gpu), transport_(gpu->transport), cached_bytes_most_(bytes_most()) {}

// Unpins those for which the condition holds and that no copy uses. Returns for how many it holds that are in use.
template <typename Condition>
unsigned SharedMemory::drop_cached(Condition which) {
  unsigned used = 0;
  for (auto it = pin_cache_.begin(); it != pin_cache_.end();) {
    const auto pin = it++;
    if (!which(*pin)) continue;
    if (pin->users) {
      ++used;
      continue;
    }
    if (transport_->unpin(pin->block) == EPIPE) gpu_->set_lost();
    cached_bytes_ -= pin->block.bytes;
    pin_cache_.erase(pin);
  }
  return used;
}

CachedPin* SharedMemory::find_cached(uint64_t begin, uint64_t end, bool write) {
  for (auto it = pin_cache_.begin(); it != pin_cache_.end(); ++it) {
    if (it->begin() > begin || it->end() < end || it->stale()) continue;
    if (write && (it->block.flags & VGPU_REGION_READ_ONLY)) continue;
    pin_cache_.splice(pin_cache_.begin(), pin_cache_, it);
    return &*it;
  }
  return nullptr;
}

// Unpins those used longest ago until one more of this length fits. False: it cannot fit.
bool SharedMemory::make_room(uint64_t bytes) {
  if (bytes > cached_bytes_most_) return false;
  for (auto it = pin_cache_.end(); cached_bytes_ > cached_bytes_most_ - bytes || pin_cache_.size() >= kCachedMost;) {
    while (it != pin_cache_.begin() && std::prev(it)->users) --it;
    if (it == pin_cache_.begin()) return false;
    const CachedPin* const oldest = &*std::prev(it);
    drop_cached([&](const CachedPin& pin) { return &pin == oldest; });
  }
  return true;
}

bool SharedMemory::drop_idle() {
  const size_t before = pin_cache_.size();
  drop_cached([](const CachedPin&) { return true; });
  const std::vector<SharedBlock> spares = spares_.take_all();
  release_all(spares);
  return pin_cache_.size() < before || !spares.empty();
}

void SharedMemory::drop_overlapping(uint64_t begin, uint64_t end, std::unique_lock<std::mutex>& lock) {
  while (drop_cached([&](const CachedPin& pin) { return overlaps(pin, begin, end); })) cached_idle_.wait(lock);
}

// 0, or an errno. EBUSY: another thread still copies from the pages that these addresses had before.
int SharedMemory::pin_and_cache(uint64_t begin, uint64_t end, bool write, CachedPin** cached) {
  CachedPin pin;
  void* const pages = reinterpret_cast<void*>(begin);
  const uint32_t flags = write ? 0 : VGPU_REGION_READ_ONLY;
  int error = transport_->pin_watched(pages, end - begin, flags, &pin.block, &pin.word);
  if (is_shortage(error) && drop_idle()) {
    error = transport_->pin_watched(pages, end - begin, flags, &pin.block, &pin.word);
  }
  if (error) return error;
  if (drop_cached([&](const CachedPin& other) { return overlaps(other, begin, end) && other.stale(); })) {
    error = transport_->unpin(pin.block);
    return error == EPIPE ? EPIPE : EBUSY;
  }
  pin_cache_.push_front(pin);
  cached_bytes_ += pin.block.bytes;
  *cached = &pin_cache_.front();
  return 0;
}

CUresult SharedMemory::borrow(void* address, uint64_t bytes, bool write, bool only_cached, BorrowedPin* pin) {
  const auto first = reinterpret_cast<uint64_t>(address);
  if (!address || bytes == 0 || bytes > VGPU_WINDOW_BYTES || first + bytes < first) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t begin = first / kPage * kPage, end = round_to_pages(first + bytes);
  std::unique_lock lock(mutex_);
  *pin = {};
  drop_cached([](const CachedPin& cached) { return cached.stale(); });
  pin->cached = find_cached(begin, end, write);
  if (!pin->cached && only_cached) return CUDA_ERROR_NOT_FOUND;
  if (!pin->cached && overlaps_block(begin, end)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  int error = ENOTSUP;
  if (!pin->cached) {
    drop_cached([&](const CachedPin& cached) { return cached.begin() >= begin && cached.end() <= end; });
    if (make_room(end - begin)) error = pin_and_cache(begin, end, write, &pin->cached);
  }
  if (pin->cached) {
    ++pin->cached->users;
    return CUDA_SUCCESS;
  }
  if (error != ENOTSUP) return result_of(error);
  lock.unlock();
  SharedBlock block;
  pin->address = address;
  return this->pin(address, bytes, write ? 0 : VGPU_REGION_READ_ONLY, &block);
}

CUresult SharedMemory::give_back(const BorrowedPin& pin) {
  if (!pin.cached) return unpin(pin.address);
  std::lock_guard lock(mutex_);
  if (--pin.cached->users) return CUDA_SUCCESS;
  drop_cached([&](const CachedPin& cached) { return &cached == pin.cached && cached.stale(); });
  cached_idle_.notify_all();
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
