// Memory of a device's pools that the program has freed in a stream's order. It stays here until the program waits for
// something: the stream's next allocation of that size has it without asking the host, behind the work that used it
// before (CUDA Programming Guide, "Stream-Ordered Memory Allocator"). To the program it is reserved memory of the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// What was freed, and in which stream's order. Handles are those of the wire.
struct FreedBlock {
  uint64_t base = 0, bytes = 0, pool = 0, stream = 0, context = 0;
};

// Bookkeeping alone. Not thread-safe.
class FreedMemory {
 public:
  // All that stays, and the largest block that does.
  static constexpr uint64_t kBytesMost = 32 << 20, kBlockMost = 16 << 20;
  static constexpr size_t kBlocksMost = 64;

  // Returns what has to go: nothing, or older blocks, or this one.
  std::vector<FreedBlock> keep(const FreedBlock& block);
  // A block of the same pool, stream and context for so many bytes as `wanted` has; 0: there is none.
  uint64_t take(const FreedBlock& wanted);
  // Those for which `goes` is true, the one freed first first.
  std::vector<FreedBlock> remove_if(const std::function<bool(const FreedBlock&)>& goes);
  bool empty() const { return blocks_.empty(); }

 private:
  std::vector<FreedBlock> blocks_;  // the one freed first is first
  uint64_t bytes_ = 0;              // of all
};

// For entry points, of all the program's pools; thread-safe. What has to go is given back to the host, in order before
// whatever the caller publishes next.

// Memory of `range`, which is of a device's own pool, is freed in the order of `stream`.
CUresult free_in_order(Call& call, const Range& range, uint64_t stream);
// 0: the host has to be asked.
uint64_t allocate_freed(Call& call, uint64_t pool, uint64_t bytes, uint64_t stream);
// All of it. False: there was none. While active_captures is not 0 nothing stays: what is given back would be captured.
// So who counts a capture calls this before it begins.
bool give_back_freed();
// Of a stream that is about to be destroyed.
void give_back_freed_of_stream(uint64_t stream);

}  // namespace bandsaw::libcuda
