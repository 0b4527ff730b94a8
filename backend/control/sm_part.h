// SMs (streaming multiprocessors) of their own, for MPS virtual GPUs: which part of a GPU's SMs the kernels
// of a process run on, as vgpud tells it to sessions and these to runners.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw {

// The driver splits a GPU's SMs into groups of `step`, in the same order in every process; those too few to make a
// group are left over.
struct SmPart {
  uint32_t step = 0;   // SMs of a group; 0: no part, all of the GPU
  uint32_t first = 0;  // group
  uint32_t count = 0;  // groups; 0: all from the first on, and what is left over
  bool operator==(const SmPart&) const = default;
};

// "8:0+1": a group of 8, the first; "8:1+": all but that one. Empty: all of the GPU.
std::string to_text(const SmPart& part);
// EINVAL.
Result<SmPart> parse_sm_part(std::string_view text);

}  // namespace bandsaw
