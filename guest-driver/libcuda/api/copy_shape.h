// CUDA's structures for 2D and 3D copies, turned into ours.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/api/transfer.h"

namespace bandsaw::libcuda {

struct ShapedCopy {
  vgpu_copy copy{};  // ends not resolved: offsets not folded, kinds not set
  Side destination = Side::kUnified, source = Side::kUnified;
};

// INVALID_VALUE for pitches and heights that are too small.
CUresult shape_of(const CUDA_MEMCPY3D& asked, ShapedCopy* shaped);

}  // namespace bandsaw::libcuda
