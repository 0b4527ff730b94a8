#include "backend/runner/execution/piece_size.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kSlowLink = 8000;  // bytes in a microsecond: eight lanes of PCIe 3.0

}  // namespace

uint64_t PieceSize::bytes(unsigned engine, BulkKind kind, uint64_t nanoseconds) const {
  const uint64_t known = speed_[engine][static_cast<size_t>(kind)].load(std::memory_order_relaxed);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(known == 0 ? kSlowLink : known, nanoseconds / 1000, &bytes)) bytes = kMost;
  return std::clamp(bytes / kStep * kStep, kLeast, kMost);
}

// Half of each measurement counts: one that was held up by others is soon forgotten.
void PieceSize::learn(unsigned engine, BulkKind kind, uint64_t bytes, uint64_t busy_ns) {
  if (bytes < kLeast || busy_ns == 0 || bytes > kMost) return;
  const uint64_t measured = std::max<uint64_t>(1, bytes * 1000 / busy_ns);
  std::atomic<uint64_t>& speed = speed_[engine][static_cast<size_t>(kind)];
  const uint64_t known = speed.load(std::memory_order_relaxed);
  speed.store(known == 0 ? measured : std::max<uint64_t>(1, (known + measured) / 2), std::memory_order_relaxed);
}

}  // namespace bandsaw::runner
