// Variables of a module: initial bytes, pointers to be patched, places in shared memory.
#pragma once

#include <vector>

#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/compile.h"

namespace bandsaw::soft {

// .global and .const variables with their initial values. Throws CompileError.
std::vector<Variable> module_variables(const FlatModule& module);
// Shared variables of functions that kernels call get places behind the module's own.
void place_function_shared(FlatModule* module);

}  // namespace bandsaw::soft
