// Names that a rewriter makes.
#pragma once

#include <string>
#include <string_view>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// "bandsaw" with so many underscores that nothing declared in the module begins like that, '%' or not.
std::string free_prefix(const Module& module);

// Whether a name begins as free_prefix() does.
bool is_rewriters(std::string_view name);

}  // namespace bandsaw::ptx
