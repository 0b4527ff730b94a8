// Host memory that the runner sees too.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/address_map.h"

namespace bandsaw::libcuda {

// The address by which the runner knows a byte of a range: the program's own, but for registered memory of direct
// mode, which the runner reaches through the window.
inline uint64_t shared_address(const Range& range, uint64_t address) {
  return range.alias ? range.alias + (address - range.base) : address;
}

// Puts shared pages under the program's own addresses, for transports that cannot pin (page_swap.cc). `alias` is
// where the same bytes lie in the window.
CUresult swap_in_shared(uint64_t address, uint64_t bytes, uint64_t* alias);
CUresult swap_out_shared(uint64_t address, uint64_t bytes, uint64_t alias);

}  // namespace bandsaw::libcuda
