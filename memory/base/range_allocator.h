// First-fit allocation of ranges of addresses. Thread-safe; knows nothing of what lies there.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace bandsaw {

class RangeAllocator {
 public:
  RangeAllocator(uint64_t base, uint64_t bytes) : bytes_(bytes), left_(bytes) { free_[base] = bytes; }

  // The lowest free range of `bytes` (not 0) at a multiple of `align` (a power of two).
  std::optional<uint64_t> take(uint64_t bytes, uint64_t align = 1);
  // Exactly this range. False: somebody has some of it, or it lies elsewhere.
  bool take_at(uint64_t address, uint64_t bytes);
  // A range as it was taken.
  void give_back(uint64_t address, uint64_t bytes);
  // Nothing is taken.
  bool untouched() const;

 private:
  const uint64_t bytes_;
  mutable std::mutex mutex_;
  uint64_t left_;                      // guarded by mutex_
  std::map<uint64_t, uint64_t> free_;  // guarded by mutex_: start -> length, never adjacent
};

}  // namespace bandsaw
