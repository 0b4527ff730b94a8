// Host memory that the runner sees too.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

// Puts shared pages under the program's own addresses, for transports that cannot pin (page_swap.cc). `block` is where
// they lie in the window, as memory of `gpu`.
CUresult swap_in_shared(VirtualGpu& gpu, uint64_t address, uint64_t bytes, uint32_t flags, uint64_t* block);
// Gives the program private pages again. Waits until the host uses the shared ones no more.
CUresult swap_out_shared(uint64_t address, uint64_t bytes, uint64_t block);

}  // namespace bandsaw::libcuda
