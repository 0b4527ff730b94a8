// Whether blocks wait for each other. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

bool polls_memory(const Instruction& instruction);

// Of the kernel with all that it calls.
Spin spin_of(const ProgramFacts& facts, const Closure& closure);

// Why the kernel cannot be cut although its code could be moved; "": it can.
std::string why_not_cut(const ProgramFacts& facts, const Closure& closure);

}  // namespace bandsaw::ptx
