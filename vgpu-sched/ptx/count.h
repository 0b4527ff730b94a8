// Counters in a kernel: what each of its threads does, added up in memory when it leaves. Inside of this folder only.
#pragma once

#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {

// Adds code and registers to the moved kernel, and a parameter "counts", the address of CountsOfBlocks; its offset.
// Not for kernels whose threads leave from inside of what they call (leaving.h). Linear in the size of the kernel.
size_t add_counters(const ProgramFacts& facts, const Closure& closure, Transplant* moved);

}  // namespace bandsaw::ptx
