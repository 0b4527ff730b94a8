// Copy nodes between the device and memory that only the program sees.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/transfer.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// Adds such a copy to the graph that `stream` captures.
CUresult capture_pageable_copy(Call& call, const vgpu_copy& copy, Side destination, Side source, uint64_t stream);

}  // namespace bandsaw::libcuda
