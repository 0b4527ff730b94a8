#include "backend/device/soft/heap.h"

#include <algorithm>

namespace bandsaw::soft {

uint64_t Heap::allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > limit_) return 0;
  if (!space_) {
    uint64_t base = 0;
    if (memory_->allocate(limit_, Use::kPrivate, owner_, &base)) return 0;
    space_.emplace(base, limit_);
  }
  bytes = (bytes + 15) & ~uint64_t{15};
  const uint64_t address = space_->take(bytes, 16);
  if (address) live_.emplace(address, bytes);
  return address;
}

bool Heap::release(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  space_->give_back(address, found->second);
  live_.erase(found);
  return true;
}

bool Heap::set_limit(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (space_) return false;
  limit_ = std::max<uint64_t>(bytes, 4096);
  return true;
}

}  // namespace bandsaw::soft
