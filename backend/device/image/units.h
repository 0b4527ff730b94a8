// The compilation units of one program as one PTX module.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::image {

// Reads the units and links them (vgpu-sched/ptx/link.h). CUDA_ERROR_INVALID_PTX: a unit cannot be read, the units
// contradict each other, or there is none; `log` says where.
CUresult read_units(const std::vector<std::string>& units, ptx::Module* module, std::string* log);

// The same as text. A single unit is passed on as it is, unread.
CUresult link_units(std::vector<std::string> units, std::string* ptx, std::string* log);

}  // namespace bandsaw::image
