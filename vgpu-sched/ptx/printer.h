// Tree to text that ptxas accepts and parse() reads back as an equal tree.
#pragma once

#include <string>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

std::string print(const Module& module);
std::string print(const Function& function);
std::string print(const Variable& variable);
std::string print(const Statement& statement);
std::string print(const Operand& operand);

}  // namespace bandsaw::ptx
