// One function as a list of instructions with what each reads and writes, names resolved, blocks opened up. Made for
// analyses that look at the flow of values and of control. Linear in the size of the function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/special.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

enum class Role : uint8_t { kResult, kRead, kAddress, kGuard, kTarget };

// What an operand names.
enum class Named : uint8_t {
  kNode,      // a register, or a variable of the function (its value: parameters of calls, spilled locals)
  kSpecial,   // Special as index
  kGlobal,    // a name that the function does not declare; index into Flow::names
  kConstant,  // the integer 0 is told from others by index: 0 or 1
};

struct Use {
  Role role = Role::kRead;
  Named named = Named::kNode;
  uint32_t index = 0;
};

struct Step {
  const Instruction* instruction = nullptr;
  Kind kind = Kind::kUnknown;
  uint32_t first_use = 0, uses = 0;
};

class Flow {
 public:
  // The function must have a body; it must outlive the Flow and stay unchanged.
  explicit Flow(const Function& function);

  const std::vector<Step>& steps() const { return steps_; }
  std::span<const Use> uses(const Step& step) const { return {uses_.data() + step.first_use, step.uses}; }
  size_t nodes() const { return node_count_; }
  const std::vector<std::string_view>& names() const { return names_; }  // of Named::kGlobal
  // The function's own parameter behind a node, or -1.
  int parameter_of(uint32_t node) const;
  // A .local variable: its node stands for all that is in it.
  bool is_variable(uint32_t node) const { return node < is_variable_.size() && is_variable_[node]; }

  // Where a branch may go: indices into steps(), steps().size() being the end. A label that is not there goes to the
  // end.
  std::span<const uint32_t> targets(size_t step) const;
  bool has_unknown_target() const { return unknown_target_; }

 private:
  class Builder;
  std::vector<Step> steps_;
  std::vector<Use> uses_;
  std::vector<std::string_view> names_;
  std::vector<bool> is_variable_;
  std::unordered_map<uint32_t, int> parameters_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> targets_;
  size_t node_count_ = 0;
  bool unknown_target_ = false;
};

}  // namespace bandsaw::ptx
