// How many chunks are brought to the device beyond what work waits for: each time that work waits, all of the process's
// work is let end first, and copies in both directions begin and end. Who goes round is spared most of that. A table
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/swap/chunks.h"

namespace bandsaw::swap {

// Not thread-safe.
class Ahead {
 public:
  static constexpr size_t kFirst = 4, kMost = 32;

  // Work waits for these chunks, some of which are away; they do not count as used by it yet.
  void waits(const Chunks& chunks, const std::vector<uint64_t>& wanted);
  // For Chunks::bring_ahead(). More each time that work waited for what was foreseen; 0 after anything else.
  size_t most() const { return most_; }
  uint64_t since() const { return since_; }

 private:
  size_t most_ = 0;
  uint64_t since_ = 0;  // when that was last used for which work waited last
};

}  // namespace bandsaw::swap
