// How managed memory of a virtual GPU is kept.
#pragma once

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

// True: it moves to the side that uses it, and host and device may not use it at once. False: it stays in the program's
// memory, and kernels reach it there: with several devices, where nobody can watch the program's touches, or if
// BANDSAW_MANAGED says so. The same for a device's life.
bool managed_memory_moves(VirtualGpu& gpu);

}  // namespace bandsaw::libcuda
