#include "guest-driver/libcuda/core/window.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::libcuda {

Window::~Window() {
  if (base_) munmap(reinterpret_cast<void*>(base_), VGPU_WINDOW_BYTES);
}

// 0, or an errno.
static int map_at(uint64_t base) {
  void* const wanted = reinterpret_cast<void*>(base);
  void* const got = mmap(wanted, VGPU_WINDOW_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return errno;
  if (got == wanted) return 0;
  munmap(got, VGPU_WINDOW_BYTES);  // a kernel that does not know MAP_FIXED_NOREPLACE
  return EEXIST;
}

// Allocators that choose addresses by chance, as TCMalloc does, may have been there first.
uint32_t Window::taken() const {
  constexpr uint64_t kBases[] = {VGPU_WINDOW_BASE_0, VGPU_WINDOW_BASE_1, VGPU_WINDOW_BASE_2};
  uint32_t bits = 0;
  for (size_t i = 0; i < std::size(kBases) && base_ != kBases[i]; ++i) {
    const int error = base_ ? EEXIST : map_at(kBases[i]);
    if (error == 0) munmap(reinterpret_cast<void*>(kBases[i]), VGPU_WINDOW_BYTES);
    if (error == EEXIST) bits |= 1u << i;
  }
  return bits;
}

int Window::reserve(uint64_t base) {
  if (base_) return base == base_ ? 0 : EXDEV;
  if (const int error = map_at(base)) return error;
  base_ = base;
  free_[0] = VGPU_WINDOW_DEVICE_OFFSET;
  return 0;
}

void Window::close(uint64_t address, uint64_t bytes) {
  mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
       0);
}

bool Window::holds(uint64_t address, uint64_t bytes) const {
  return address >= base_ && address - base_ < VGPU_WINDOW_BYTES && bytes <= VGPU_WINDOW_BYTES - (address - base_);
}

uint64_t Window::take(uint64_t bytes, uint64_t align) {
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const uint64_t start = it->first, length = it->second;
    const uint64_t offset = (start + align - 1) & ~(align - 1);
    if (offset - start >= length || bytes > length - (offset - start)) continue;
    free_.erase(it);
    if (offset > start) free_[start] = offset - start;
    const uint64_t rest = length - (offset - start) - bytes;
    if (rest) free_[offset + bytes] = rest;
    return offset;
  }
  return kNone;
}

void Window::give_back(uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace bandsaw::libcuda
