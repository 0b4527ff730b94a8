// Whether a kernel reaches the program's memory through pointers in its own parameters only, and which parameters those
// are: who knows a launch's parameters then knows what it needs.
//
// An access counts for the allocation that its pointer points into, as CUDA has it. Pure; any thread. Careful: what may
// be wrong is "no".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/program.h"

namespace bandsaw::ptx {

struct PointerParameters {
  struct Pointer {
    size_t at = 0;  // byte offset in the packed parameters; 64 bits
    // The program says that it is a pointer, so that 0 is none. Else 0 may be a number that is added to one.
    bool declared = false;
    bool operator==(const Pointer&) const = default;
  };
  // Why other memory may be reached; "": none is, but for the kernel's own: shared and local memory, parameters,
  // variables of its module.
  std::string why_not;
  std::vector<Pointer> pointers;  // by offset
};

// Of a kernel that there is.
PointerParameters pointer_parameters(const Program& program, std::string_view kernel);

}  // namespace bandsaw::ptx
