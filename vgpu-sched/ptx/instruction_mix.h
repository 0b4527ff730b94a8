// What a function's instructions are. Inside of this folder only.
#pragma once

#include <cstdint>
#include <map>

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {

// Of global memory, a generic address taken for one; bytes that one thread loads or stores, none of an atomic's.
struct Access {
  bool global = false;
  uint64_t bytes = 0;
};
Access access_of(const Instruction& instruction, Kind kind);

// Of a kernel with what it calls; a function that calls itself is taken once.
InstructionMix instruction_mix_of(const ProgramFacts& facts, const Closure& closure);

// Of each function that it calls, with what that calls.
std::map<uint32_t, InstructionMix> instruction_mixes_of_called(const ProgramFacts& facts, const Closure& closure);

}  // namespace bandsaw::ptx
