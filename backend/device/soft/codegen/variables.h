// Variables of a module: initial bytes, pointers to be patched, places in shared memory.
#pragma once

#include <set>
#include <vector>

#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/compile.h"

namespace bandsaw::soft {

// .global and .const variables with their initial values. Throws CompileError.
std::vector<Variable> module_variables(const FlatModule& module);
// Places for what these functions, a kernel and all that it may call, name of the module's shared variables, and behind
// them for the functions' own. What others name takes no room: in PTX of clang, variables of all kernels are the
// module's.
void place_shared(FlatModule* module, const std::set<const FlatFunction*>& functions);

// Moves the function's own static shared variables, which lie in front of kernels' own, behind `base` bytes.
void move_shared(FlatFunction* function, uint64_t base);

// Throws CompileError if static shared variables of a kernel take more than they may: so many bytes, or what those of
// its body take together.
void check_shared_bytes(const std::string& kernel, uint32_t line, uint64_t bytes);
void check_shared(const ptx::Function& kernel, uint32_t first_line);

}  // namespace bandsaw::soft
