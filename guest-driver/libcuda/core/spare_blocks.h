// Shared memory that the program has given back and the host still sees: making a block known to the host and taking it
// back are two control requests, which programs that allocate in a loop would pay each time.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "guest-driver/libcuda/core/shared_block.h"

namespace bandsaw::libcuda {

// Not thread-safe. What it returns is the caller's to release.
class SpareBlocks {
 public:
  static constexpr uint64_t kBlockBytesMost = 16u << 20;
  static constexpr uint64_t kBytesMost = 64u << 20;
  static constexpr size_t kCountMost = 32;

  // False: too large to be kept.
  static bool keeps(const SharedBlock& block) { return block.bytes <= kBlockBytesMost; }

  // Keeps a block that keeps() is true for. Returns those that had to go for it, the ones kept longest.
  std::vector<SharedBlock> put(const SharedBlock& block);
  // The smallest block of these flags that has `bytes` and at most twice as many. Its bytes are as they were left.
  std::optional<SharedBlock> take(uint64_t bytes, uint32_t flags);
  // All of them; none is left.
  std::vector<SharedBlock> take_all();

 private:
  std::list<SharedBlock> blocks_;  // the one kept longest is first
  uint64_t bytes_ = 0;
};

}  // namespace bandsaw::libcuda
