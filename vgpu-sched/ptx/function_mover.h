// One function of a Transplant: its code with other names for what the new module lacks.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {

class FunctionMover {
 public:
  FunctionMover(const ProgramFacts& facts, const Closure& closure, uint32_t function, const std::string& prefix);

  // The rewritten function, parameters and entry code not yet added.
  Function run();
  const std::string& refusal() const { return refusal_; }
  size_t handed() const { return handed_; }  // parameters added to its calls

  // Declares the registers that the code uses, as text with the prefix in place.
  std::string declarations() const;
  // Computes addresses inside of borrowed variables from the variables' registers (see variable_register).
  std::string addresses() const;

  // "v3": what follows the prefix in the register that holds the address of a borrowed variable.
  static std::string variable_register(uint32_t variable) { return "v" + std::to_string(variable); }

 private:
  Block block(const Block& from, const Scope& scope);
  void instruction(const Statement& from, const Scope& scope, std::vector<Statement>* to);
  bool grid_vector(const Instruction& from, std::vector<Statement>* to);
  void grid_scalar(Instruction* i);
  void constants(Instruction* i) const;
  void names(Operand* operand, const Scope& scope);
  void grid_register(Operand* operand);
  std::string grid_name(const Register& r, char axis) const;
  void call(Instruction i, Place place, const Scope& scope, std::vector<Statement>* to);
  std::string address_register(uint32_t variable, int64_t offset);
  int64_t borrowed(const std::string& name, const Scope& scope) const;

  const ProgramFacts& facts_;
  const Closure& closure_;
  const uint32_t function_;
  const std::string& prefix_;
  const std::vector<uint32_t>& variables_;                      // sorted
  std::map<std::pair<uint32_t, int64_t>, std::string> inside_;  // registers of addresses inside of variables
  std::string refusal_;
  size_t handed_ = 0;
};

// What a function takes beyond its own parameters, in order: suffix of register and parameter, type.
struct Handed {
  std::string suffix;
  Type type;
};
std::vector<Handed> handed_to(const Closure& closure, uint32_t function);
// Its parameters are registers, not in .param space.
bool takes_registers(const Function& function);

}  // namespace bandsaw::ptx
