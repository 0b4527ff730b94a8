// What a function's instructions are. Inside of this folder only.
#pragma once

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

// Of a kernel with what it calls; a function that calls itself is taken once.
Mix mix_of(const ProgramFacts& facts, const Closure& closure);

}  // namespace bandsaw::ptx
