// What launches and kernel nodes share.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

struct ParameterBuffer {
  alignas(16) std::byte bytes[32768];  // CUDA's limit is 32,764; not initialised
};

// Packs kernelParams or the `extra` form into the function's layout. INVALID_VALUE if they do not fit it.
CUresult pack_parameters(const FunctionRecord& function, void** parameters, void** extra, ParameterBuffer* buffer);

// With CUDA_LAUNCH_BLOCKING a launch, of a kernel or a graph, returns when its work is done, with that work's error.
CUresult after_launch(Call& call, uint64_t stream);

// What CUDA reports at the launch itself: INVALID_VALUE, INVALID_CLUSTER_SIZE, COOPERATIVE_LAUNCH_TOO_LARGE, ...
CUresult check_launch(FunctionRecord* function, const vgpu_launch& launch);

// Fills `launch` with the shape, attributes and hints of a configuration. Events are left out: only a launch records
// them.
CUresult read_config(const CUlaunchConfig& config, const FunctionRecord& function, vgpu_launch* launch);

}  // namespace bandsaw::libcuda
