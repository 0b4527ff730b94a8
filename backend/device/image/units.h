// The compilation units of one program as one PTX text.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace bandsaw::soft {

// A single unit is passed on as it is; several are linked (vgpu-sched/ptx/link.h). CUDA_ERROR_INVALID_PTX: a unit
// cannot be read, the units contradict each other, or there is none; `log` says where.
CUresult link_units(std::vector<std::string> units, std::string* ptx, std::string* log);

}  // namespace bandsaw::soft
