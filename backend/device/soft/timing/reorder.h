// The order that a compiler for the GPU would give a kernel's instructions: loads first, what waits for them as late as
// there is something else to do. A trace has them in the order of the PTX.
#pragma once

#include "backend/device/soft/timing/machine.h"
#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

// Within straight parts of the code that warps go through from their first instruction on: those stay where they are,
// and so does what ends them. Accesses and barriers keep their order, so traces of the code hold as they are.
Code reorder(const LaunchTrace& launch, const Machine& machine);

}  // namespace bandsaw::soft::timing
