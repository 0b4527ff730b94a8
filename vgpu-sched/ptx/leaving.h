// Whether the threads of a block leave a kernel together. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

// A thread that leaves early is not counted at later barriers; one that only waits for the next block would be. Why
// some threads may leave while others still meet; "": they do not.
std::string leaves_apart(const ProgramFacts& facts, const Closure& closure);

}  // namespace bandsaw::ptx
