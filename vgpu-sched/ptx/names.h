// Names that a rewriter makes. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// "bandsaw" with so many underscores that nothing declared in the module begins like that, '%' or not.
std::string free_prefix(const Module& module);

}  // namespace bandsaw::ptx
