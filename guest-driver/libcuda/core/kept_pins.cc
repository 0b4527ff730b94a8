// Memory pinned for copies is kept pinned: making it known to a GPU costs more than a copy. A buffer that is copied
// once costs no more than before, because giving its pages back is only put off.
//
// Each kept pin is watched by the kernel. What makes it right to use one that is not stale, although kept pins may
// overlap and the host takes any region that holds the bytes: a new one is only used when no overlapping one was stale
// after it was pinned, so all that hold its addresses then, and as long as it is not stale, hold the same pages there.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

constexpr size_t kKeptMost = 256;
constexpr uint64_t kKeptBytesMost = 8ull << 30;

uint64_t bytes_most() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? std::min(kKeptBytesMost, static_cast<uint64_t>(pages) / 2 * kPage) : 0;
}

bool overlaps(const KeptPin& pin, uint64_t begin, uint64_t end) { return pin.begin() < end && pin.end() > begin; }

}  // namespace

SharedMemory::SharedMemory(Transport* transport) : transport_(transport), kept_bytes_most_(bytes_most()) {}

// Lets go of those that fulfil the condition and that no copy uses. Returns how many fulfil it and are in use.
template <typename Condition>
unsigned SharedMemory::drop_kept(Condition which) {
  unsigned used = 0;
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto pin = it++;
    if (!which(*pin)) continue;
    if (pin->users) {
      ++used;
      continue;
    }
    if (transport_->unpin(pin->block) == EPIPE) set_lost();
    kept_bytes_ -= pin->block.bytes;
    kept_.erase(pin);
  }
  return used;
}

KeptPin* SharedMemory::find_kept(uint64_t begin, uint64_t end, bool write) {
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if (it->begin() > begin || it->end() < end || it->stale()) continue;
    if (write && (it->block.flags & VGPU_REGION_READ_ONLY)) continue;
    kept_.splice(kept_.begin(), kept_, it);
    return &*it;
  }
  return nullptr;
}

// Of the ones used longest ago, as many as must go for one more of this length.
bool SharedMemory::make_room(uint64_t bytes) {
  if (bytes > kept_bytes_most_) return false;
  for (auto it = kept_.end(); kept_bytes_ > kept_bytes_most_ - bytes || kept_.size() >= kKeptMost;) {
    while (it != kept_.begin() && std::prev(it)->users) --it;
    if (it == kept_.begin()) return false;
    const KeptPin* const oldest = &*std::prev(it);
    drop_kept([&](const KeptPin& pin) { return &pin == oldest; });
  }
  return true;
}

bool SharedMemory::drop_idle() {
  const size_t before = kept_.size();
  drop_kept([](const KeptPin&) { return true; });
  return kept_.size() < before;
}

void SharedMemory::drop_overlapping(uint64_t begin, uint64_t end, std::unique_lock<std::mutex>& lock) {
  while (drop_kept([&](const KeptPin& pin) { return overlaps(pin, begin, end); })) kept_idle_.wait(lock);
}

// 0, or an errno; EBUSY when another thread is still copying from what these addresses were before.
int SharedMemory::pin_kept(uint64_t begin, uint64_t end, bool write, KeptPin** kept) {
  KeptPin pin;
  void* const pages = reinterpret_cast<void*>(begin);
  const uint32_t flags = write ? 0 : VGPU_REGION_READ_ONLY;
  int error = transport_->pin_watched(pages, end - begin, flags, &pin.block, &pin.word);
  if (is_shortage(error) && drop_idle()) {
    error = transport_->pin_watched(pages, end - begin, flags, &pin.block, &pin.word);
  }
  if (error) return error;
  if (drop_kept([&](const KeptPin& other) { return overlaps(other, begin, end) && other.stale(); })) {
    error = transport_->unpin(pin.block);
    return error == EPIPE ? EPIPE : EBUSY;
  }
  kept_.push_front(pin);
  kept_bytes_ += pin.block.bytes;
  *kept = &kept_.front();
  return 0;
}

CUresult SharedMemory::borrow(void* address, uint64_t bytes, bool write, bool only_kept, BorrowedPin* pin) {
  const auto first = reinterpret_cast<uint64_t>(address);
  if (!address || bytes == 0 || bytes > VGPU_WINDOW_BYTES || first + bytes < first) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t begin = first / kPage * kPage, end = round_to_pages(first + bytes);
  std::unique_lock lock(mutex_);
  *pin = {};
  drop_kept([](const KeptPin& kept) { return kept.stale(); });
  pin->kept = find_kept(begin, end, write);
  if (!pin->kept && only_kept) return CUDA_ERROR_NOT_FOUND;
  if (!pin->kept && overlaps_block(begin, end)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  int error = ENOTSUP;
  if (!pin->kept) {
    drop_kept([&](const KeptPin& kept) { return kept.begin() >= begin && kept.end() <= end; });
    if (make_room(end - begin)) error = pin_kept(begin, end, write, &pin->kept);
  }
  if (pin->kept) {
    ++pin->kept->users;
    return CUDA_SUCCESS;
  }
  if (error != ENOTSUP) return memory_result(error);
  lock.unlock();
  SharedBlock block;
  pin->address = address;
  return this->pin(address, bytes, write ? 0 : VGPU_REGION_READ_ONLY, &block);
}

CUresult SharedMemory::give_back(const BorrowedPin& pin) {
  if (!pin.kept) return unpin(pin.address);
  std::lock_guard lock(mutex_);
  if (--pin.kept->users) return CUDA_SUCCESS;
  drop_kept([&](const KeptPin& kept) { return &kept == pin.kept && kept.stale(); });
  kept_idle_.notify_all();
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
