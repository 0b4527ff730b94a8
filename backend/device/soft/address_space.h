// Hands out ranges of the window's upper half. Addresses only; mapping is Memory's business.
#pragma once

#include <cstdint>
#include <map>

namespace bandsaw::soft {

// First fit over the free ranges. Not thread-safe.
class AddressSpace {
 public:
  AddressSpace(uint64_t begin, uint64_t bytes);
  // 0 when nothing fits. `align` is a power of two.
  uint64_t take(uint64_t bytes, uint64_t align);
  // Exactly this range. False: somebody has some of it.
  bool take_at(uint64_t address, uint64_t bytes);
  void give_back(uint64_t address, uint64_t bytes);

 private:
  std::map<uint64_t, uint64_t> free_;  // start -> bytes; neighbours are merged
};

}  // namespace bandsaw::soft
