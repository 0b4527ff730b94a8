// What one instruction touches, as the guard sees it. Inside of this folder only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

struct GuardedAccess {
  Space space = Space::kNone;  // kNone: global, or generic
  size_t operand = 0;          // the instruction's operand that is the address
  uint64_t bytes = 0;          // of a matrix: of one of its lines
  uint32_t alignment = 1;
  // Of a matrix whose lines are apart: how many there are but one, and bytes of an element, which `stride` counts.
  uint32_t further_lines = 0, element_bytes = 0;
  size_t stride = 0;  // the operand
};

// Accesses of memory by addresses that kernels compute; those of .param, .const and .local are not among them.
std::vector<GuardedAccess> guarded_accesses(const Instruction& instruction);

// Why the guard cannot take an instruction: "has an instruction that ..."; "": it can.
std::string why_not_guarded(const Instruction& instruction);

// Names of the registers in an operand, those that addresses are made of among them.
void add_registers(const Operand& operand, std::set<std::string, std::less<>>* names);

// It has no effect on other threads and needs none of them: it may be executed by a part of a warp.
bool is_alone(const Instruction& instruction);

}  // namespace bandsaw::ptx
