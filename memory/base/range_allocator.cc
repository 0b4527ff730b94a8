#include "memory/base/range_allocator.h"

#include <iterator>

namespace bandsaw {

std::optional<uint64_t> RangeAllocator::take(uint64_t bytes, uint64_t align) {
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, length] = *it;
    const uint64_t skipped = -start & (align - 1);
    if (length < skipped || length - skipped < bytes) continue;
    const uint64_t address = start + skipped, rest = length - skipped - bytes;
    if (skipped == 0) {
      free_.erase(it);
    } else {
      it->second = skipped;
    }
    if (rest != 0) free_[address + bytes] = rest;
    left_ -= bytes;
    return address;
  }
  return std::nullopt;
}

bool RangeAllocator::take_at(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = free_.upper_bound(address);
  if (bytes == 0 || found == free_.begin()) return false;
  found = std::prev(found);
  const auto [start, length] = *found;
  const uint64_t skipped = address - start;
  if (skipped > length || bytes > length - skipped) return false;
  const uint64_t rest = length - skipped - bytes;
  if (skipped == 0) {
    free_.erase(found);
  } else {
    found->second = skipped;
  }
  if (rest != 0) free_[address + bytes] = rest;
  left_ -= bytes;
  return true;
}

void RangeAllocator::give_back(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  left_ += bytes;
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_[address] = bytes;
}

bool RangeAllocator::untouched() const {
  std::lock_guard lock(mutex_);
  return left_ == bytes_;
}

}  // namespace bandsaw
