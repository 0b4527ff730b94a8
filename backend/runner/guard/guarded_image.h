// From an image, as programs hand it over, to PTX text whose kernels are guarded.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/guard_area.h"

namespace bandsaw::runner {

struct ImageGuard {
  bool guard = false, clear_shared = false;  // what is to be done
  ptx::GuardArea area;                       // for `guard`
  uint32_t gpu = 0;                          // 90 for a compute capability of 9.0; 0: any
};

// NO_BINARY_FOR_GPU: it has no PTX for the GPU.
CUresult guard_image(const ImageGuard& how, std::vector<std::byte>* image, std::string* log);

}  // namespace bandsaw::runner
