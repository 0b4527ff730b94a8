// Whether the threads of a block leave a kernel together. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

struct Leaving {
  std::string reason;        // why some threads may leave while others still meet; "": they do not
  bool whole_warps = false;  // so long as %tid.x / 32 is the same for all of a warp
};

// A thread that leaves early is not counted at later barriers, nor waited for by its warp; one that only waits for the
// next block would be.
Leaving leaves_apart(const ProgramFacts& facts, const Closure& closure);

// Where its threads leave from inside of what it calls: in words, as a reason for a refusal; "": they do not.
std::string leaves_inside(const ProgramFacts& facts, const Closure& closure);

}  // namespace bandsaw::ptx
