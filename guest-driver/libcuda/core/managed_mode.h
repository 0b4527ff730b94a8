// How managed memory of a virtual GPU is kept.
#pragma once

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "memory/managed/work_table.h"

namespace bandsaw::libcuda {

// True: it moves to the side that uses it, and host and device may not use it at once. False: it stays in the program's
// memory, and kernels reach it there: with several devices, where nobody can watch the program's touches, or if
// BANDSAW_MANAGED says so. The same for a device's life.
bool managed_memory_moves(VirtualGpu& gpu);

// Work that may use managed memory. Whoever has waited for the device says so here. Never freed.
managed::WorkTable& managed_work();
uint32_t own_thread();  // as the kernel numbers threads
managed::WorkStream work_stream(const Call& call, uint64_t stream);

}  // namespace bandsaw::libcuda
