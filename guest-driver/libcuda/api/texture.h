// What texture objects and texture references have in common: their descriptions on the wire.
#pragma once

#include <cuda.h>

#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// INVALID_HANDLE for an array that there is not, INVALID_VALUE for a resource that CUDA does not know.
CUresult wire_resource(const CUDA_RESOURCE_DESC& asked, vgpu_resource* resource);
vgpu_sampler wire_sampler(const CUDA_TEXTURE_DESC& asked);
// The module is gone, and its texture and surface references with it. Any thread.
void forget_references(uint64_t module);

}  // namespace bandsaw::libcuda
