// Loops over all lanes, for the vectors that this processor has.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

// pointers[l] = addresses[l] + add. Whether a lane of the mask has an address of which a bit of `low` is set, or that
// does not lie in [base, base + room].
bool any_lane_outside(const uint64_t* addresses, uint32_t mask, uint64_t base, uint64_t room, uint64_t low,
                      uint64_t add, uint64_t* pointers);

// out[l] = a[l] as tf32: bits 0 and 1 of the flags are 0 for rounding to the nearest, ties away from zero; 1 towards
// zero; 2 to the nearest, ties to even. Bit 2: negative numbers become 0. Bit 3: what is too large, the largest number.
void round_to_tf32(const uint32_t* a, uint32_t* out, uint32_t flags);

}  // namespace bandsaw::soft
