// What a guest's first calls would otherwise wait for.
#pragma once

#include "backend/device/cuda/driver.h"

namespace bandsaw::cuda {

// Goes once through the driver's usual paths (memory, copies, a kernel, streams, events), which read their code in from
// disk and set up their structures at their first use: some tens of milliseconds in all. A context must be current.
// Nothing is left behind; a call that fails here fails again, and is reported, when the guest makes it.
void walk_driver_paths(const Driver& driver, CUdevice device);

}  // namespace bandsaw::cuda
