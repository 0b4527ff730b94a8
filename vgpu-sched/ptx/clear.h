// A module whose kernels clear their shared memory before they end, so that a block that comes later to the same SM, of
// whatever program, finds nothing of theirs there.
#pragma once

#include <variant>

#include "vgpu-sched/ptx/program.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// The threads of a block that leave last clear what it has of shared memory, static and dynamic. Threads are counted as
// they leave, so that none waits for another; a barrier at the beginning makes the count. Kernels that use no shared
// memory stay as they are. Not cleared: after a fault. Refused: for GPUs before 9.0, where functions that are called
// have variables of their own. Pure.
std::variant<Module, Refusal> clear_shared(Module module);

}  // namespace bandsaw::ptx
