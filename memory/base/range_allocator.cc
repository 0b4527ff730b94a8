#include "memory/base/range_allocator.h"

#include <iterator>

namespace bandsaw {
namespace {

// Takes bytes out of a free range, from `skipped` bytes behind its beginning. The range has so many.
void cut(std::map<uint64_t, uint64_t>* free, std::map<uint64_t, uint64_t>::iterator range, uint64_t skipped,
         uint64_t bytes) {
  const auto [start, length] = *range;
  const uint64_t end = start + skipped + bytes, rest = length - skipped - bytes;
  if (skipped == 0) {
    free->erase(range);
  } else {
    range->second = skipped;
  }
  if (rest != 0) (*free)[end] = rest;
}

}  // namespace

std::optional<uint64_t> RangeAllocator::take(uint64_t bytes, uint64_t align) {
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, length] = *it;
    const uint64_t skipped = -start & (align - 1);
    if (length < skipped || length - skipped < bytes) continue;
    const uint64_t address = start + skipped;
    cut(&free_, it, skipped, bytes);
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
  cut(&free_, found, skipped, bytes);
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
