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

}  // namespace bandsaw::soft
