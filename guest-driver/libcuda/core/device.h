// The one device that a program sees.
#pragma once

#include <cuda.h>

namespace bandsaw::libcuda {

// CUDA_SUCCESS if the driver is ready and `device` is the device; else what to return. A sticky error does not count:
// questions about the device are answered from what cuInit learned.
CUresult check_device(CUdevice device);

// An attribute as cuInit learned it.
int device_attribute(CUdevice_attribute attribute);

}  // namespace bandsaw::libcuda
