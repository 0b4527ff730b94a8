#include "backend/device/soft/address_space.h"

#include <iterator>

namespace bandsaw::soft {

AddressSpace::AddressSpace(uint64_t begin, uint64_t bytes) { free_.emplace(begin, bytes); }

uint64_t AddressSpace::take(uint64_t bytes, uint64_t align) {
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const uint64_t begin = (at->first + align - 1) & ~(align - 1);
    const uint64_t end = at->first + at->second;
    if (begin > end || bytes > end - begin) continue;
    const uint64_t before = begin - at->first, after = end - begin - bytes;
    if (after) free_.emplace_hint(std::next(at), begin + bytes, after);
    if (before) {
      at->second = before;
    } else {
      free_.erase(at);
    }
    return begin;
  }
  return 0;
}

bool AddressSpace::take_at(uint64_t address, uint64_t bytes) {
  auto at = free_.upper_bound(address);
  if (at == free_.begin()) return false;
  --at;
  const uint64_t before = address - at->first;
  if (before > at->second || bytes > at->second - before) return false;
  const uint64_t after = at->second - before - bytes;
  if (after) free_.emplace_hint(std::next(at), address + bytes, after);
  if (before) {
    at->second = before;
  } else {
    free_.erase(at);
  }
  return true;
}

void AddressSpace::give_back(uint64_t address, uint64_t bytes) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && address + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace_hint(next, address, bytes);
}

}  // namespace bandsaw::soft
