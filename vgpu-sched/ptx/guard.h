// A module whose kernels reach only memory that they may reach: what goes elsewhere is left out and reported, and does
// not fault. For processes that share their faults with others.
//
// Memory that a kernel may reach: the area; what the table of ranges lists; the block's shared memory; the module's own
// variables. The host changes the table while kernels run: a range is added after it was mapped, and taken away before
// the last work ends that may reach it, which its unmapping waits for.
#pragma once

#include <string>
#include <variant>

#include "vgpu-sched/ptx/guard_area.h"
#include "vgpu-sched/ptx/program.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// The module's text with all its functions guarded, or why it cannot be. Pure; linear in the size of the module but for
// the limits of Flow. What it makes is to be compiled: if the compiler refuses it, the module is refused.
std::variant<std::string, Refusal> guard(Module module, const GuardArea& area);

}  // namespace bandsaw::ptx
