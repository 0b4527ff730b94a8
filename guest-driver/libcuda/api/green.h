// Green contexts, as contexts and streams know them.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/core/context.h"

namespace bandsaw::libcuda {

CUdevResource resource_of(const SmRange& range);

// The green context that this context stands for; nullptr for any other context.
CUgreenCtx green_of(const Context* context);

}  // namespace bandsaw::libcuda
