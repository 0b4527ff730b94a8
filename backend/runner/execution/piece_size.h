// How large a piece of a copy or fill is that takes a given time, learned from pieces that have ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "vgpu-sched/engine.h"

namespace bandsaw::runner {

// Work that is measured apart: rows move slower than one range does, fills faster.
enum class BulkKind : uint8_t { kLinear, kStrided, kFill };
inline constexpr size_t kBulkKinds = 3;

// Thread-safe.
class PieceSize {
 public:
  static constexpr uint64_t kStep = 64 << 10;  // pieces are so many bytes times n
  static constexpr uint64_t kLeast = 256 << 10, kMost = uint64_t{4} << 30;

  // Bytes of a piece of this length. Before anything is known: what a slow link moves in that time.
  uint64_t bytes(unsigned engine, BulkKind kind, uint64_t nanoseconds) const;
  void learn(unsigned engine, BulkKind kind, uint64_t bytes, uint64_t busy_ns);

 private:
  // Bytes in a microsecond; 0: not known.
  std::array<std::array<std::atomic<uint64_t>, kBulkKinds>, kEngines> speed_{};
};

}  // namespace bandsaw::runner
