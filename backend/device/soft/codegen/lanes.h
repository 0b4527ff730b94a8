// Loops over all lanes, for the vectors that this processor has.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

// pointers[l] = addresses[l] + add. Whether a lane of the mask has an address of which a bit of `low` is set, or that
// does not lie in [base, base + room].
bool any_lane_outside(const uint64_t* addresses, uint32_t mask, uint64_t base, uint64_t room, uint64_t low,
                      uint64_t add, uint64_t* pointers);

}  // namespace bandsaw::soft
