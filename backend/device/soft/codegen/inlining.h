// Functions that are put in the place of their calls. Lanes wait in them for others: for those of a warp that a branch
// has parted to take turns, their code must be one function's.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::soft {

// Instructions that a function may get from those that it calls; calls beyond that stay calls.
inline constexpr size_t kMostInlined = 1500;

struct InlinedFunction {
  const ptx::Function* source = nullptr;
  const ptx::Instruction* last = nullptr;  // of its body, if it ends with one
  size_t own = 0, all = 0;                 // instructions; with those of functions that are put into it
};

// By name: those in which lanes wait, or that call such ones. Not kernels, and none that may call itself by name.
std::map<std::string, InlinedFunction> inlined_functions(const ptx::Module& module);

// Whether a caller's buffer can be a parameter.
bool can_be(const ptx::Variable& parameter, const ptx::Variable& buffer);

}  // namespace bandsaw::soft
