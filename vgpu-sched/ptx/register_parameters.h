// Arguments and results of functions in registers (PTX ISA, section 7.1): `.func (.reg .u32 r) f(.reg .u64 a)`.
#pragma once

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// Makes them .param ones of the same width, as compilers write them: functions begin by loading them and store results
// before they return, and callers store arguments before a call and load results behind it. What has no such form
// (predicates, vectors, 128 bits) stays. Throws ParseError where a call does not fit what it calls.
void parameters_in_memory(Module* module);

}  // namespace bandsaw::ptx
