// Where lanes come together: instructions that name lanes or wait for them, and calls of functions with such ones.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::soft {

// Whether lanes named by a member mask (or all of the warp) come together at the instruction.
bool is_gathering(const ptx::Instruction& in);
// Whether its last operand says which lanes; each lane names those of its own group.
bool names_lanes(const ptx::Instruction& in);

// Which lanes come together in a function.
struct NamedLanes {
  int argument = -1;  // its parameter that names them; -1: they are `lanes`
  uint32_t lanes = 0;
  auto operator<=>(const NamedLanes&) const = default;
};

// What it calls by name; empty: it is no such call.
std::string called_function(const ptx::Instruction& in);
// Functions with a barrier of the block, or that call such a one.
std::set<std::string> functions_that_wait(const ptx::Module& source);
// Functions in which the same lanes come together everywhere, or all of them somewhere: what compilers for debuggers
// leave of __syncwarp() and its like.
std::map<std::string, NamedLanes> functions_that_gather(const ptx::Module& source);

}  // namespace bandsaw::soft
