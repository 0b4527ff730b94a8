// Which global memory a kernel reads and writes. Inside of this folder only.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

// Sets idempotence, the reason and the lists of what is read and written.
void find_accesses(const ProgramFacts& facts, const Closure& closure, Analysis* analysis);

}  // namespace bandsaw::ptx
