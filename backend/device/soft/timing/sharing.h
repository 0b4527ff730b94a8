// How much of what some SMs read others read too. A part of the GPU is simulated, with its part of L2 and DRAM: lines
// that all SMs read are brought for all of them by one, and take room once.
#pragma once

#include <cstdint>

#include "backend/device/soft/timing/machine.h"
#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

// By how many parts of the GPU, like the one that is simulated, a line of it is used on average: 1, each has its own,
// to as many as there are. The lines of the whole grid are taken to grow with its blocks as those of the recorded
// blocks do in their second half. `simulated`: the first blocks of the trace that are simulated.
double sharing_of(const LaunchTrace& launch, uint64_t simulated, const Machine& machine);

}  // namespace bandsaw::soft::timing
