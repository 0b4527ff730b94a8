// The devices that a program sees.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

// CUDA_SUCCESS if the driver is ready and `device` is a device; else what to return. A sticky error does not count:
// questions about the device are answered from what cuInit learned.
CUresult check_device(CUdevice device);

// An attribute as cuInit learned it: of the current device, or of a checked one.
int device_attribute(CUdevice_attribute attribute);
int device_attribute(CUdevice_attribute attribute, CUdevice device);

// What kernels' instructions do atomically in memory that two sides share, with its caches:
// CUatomicOperationCapability.
unsigned native_atomics(CUatomicOperation operation);

}  // namespace bandsaw::libcuda
