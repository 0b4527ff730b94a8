#include "backend/device/soft/codegen/lanes.h"

#include "backend/device/soft/warp.h"

#define BANDSAW_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))

namespace bandsaw::soft {

BANDSAW_VECTORS bool any_lane_outside(const uint64_t* addresses, uint32_t mask, uint64_t base, uint64_t room,
                                      uint64_t low, uint64_t add, uint64_t* pointers) {
  // Half of all addresses is more room than there is, so a top bit says that an address lies before or behind.
  constexpr uint64_t kTop = uint64_t{1} << 63;
  uint64_t outside = 0;
  for (uint64_t l = 0; l < kWarpLanes; ++l) {
    const uint64_t before = addresses[l] - base, behind = room - before, active = uint64_t{mask} >> l & 1;
    outside |= (((before | behind) & kTop) | (addresses[l] & low)) & (0 - active);
    pointers[l] = addresses[l] + add;
  }
  return outside != 0;
}

// Infinity stays what it is by rounding.
BANDSAW_VECTORS void round_to_tf32(const uint32_t* a, uint32_t* out, uint32_t flags) {
  constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7f800000, kLargest = 0x7f7fe000, kNan = 0x7fffffff;
  const uint32_t mode = flags & 3;
  const uint32_t add = mode == 0 ? 0x1000 : mode == 2 ? 0xfff : 0, even = mode == 2 ? 1 : 0;
  const uint32_t no_negative = flags & 4 ? kSign : 0, finite = flags & 8 ? kInfinity : ~0u;
  for (uint32_t l = 0; l < kWarpLanes; ++l) {
    const uint32_t bits = a[l];
    uint32_t rounded = (bits + add + (bits >> 13 & even)) & ~0x1fffu;
    rounded = (rounded & ~kSign) >= finite ? (bits & kSign) | kLargest : rounded;
    rounded = bits & no_negative ? 0 : rounded;
    out[l] = (bits & ~kSign) > kInfinity ? kNan : rounded;
  }
}

}  // namespace bandsaw::soft
