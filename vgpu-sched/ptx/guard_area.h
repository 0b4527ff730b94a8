// Where guarded kernels may go (guard.h), and what they and the host tell each other in device memory:
//   at `table`: GuardTable, and behind it lists of ranges, sorted by address, none touching another
//   at `report`: GuardReport, which the host reads
#pragma once

#include <cstdint>

namespace bandsaw::ptx {

// There are several lists of ranges, of which `current` names one: its number, above the count of its ranges. The host
// writes into another one and then names that.
struct GuardTable {
  uint32_t failures = 0;  // kernels count them here: threads end once there are kGuardFailuresMost
  uint32_t current = 0;   // list << 16 | ranges
};
struct GuardRange {
  uint64_t begin = 0, end = 0;  // the first byte, and the one behind the last
};
inline constexpr uint32_t kGuardLists = 4, kGuardRangesMost = 4096;
inline constexpr uint32_t kGuardFailuresMost = 1u << 16;
inline constexpr uint64_t kGuardListsAt = 16, kGuardListBytes = kGuardRangesMost * sizeof(GuardRange);
inline constexpr uint64_t kGuardTableBytes = kGuardListsAt + kGuardLists * kGuardListBytes;

// `error` is a CUresult; it is written last. Written by many threads: any of them may be seen.
struct GuardReport {
  uint32_t error = 0, unused = 0;
  uint64_t address = 0;
};

struct GuardArea {
  uint64_t base = 0;  // a multiple of its size
  uint32_t bits = 0;  // 2^bits bytes, 32 to 40
  uint64_t slack =
      0;  // bytes in front of it and behind it that are mapped, too: what may be added to a checked address
  uint64_t table = 0, report = 0;  // addresses; the report's is not 0
};

}  // namespace bandsaw::ptx
