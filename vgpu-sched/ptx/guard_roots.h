// Where the addresses of a function come from: a pointer, and what was added to it since. Inside of this folder only.
//
// A pointer that was checked stands for all addresses that are less than the slack away from it. The text decides:
// hostile code may use a register before it was written, so each step of a derivation must come by on every way to the
// next one.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/control.h"
#include "vgpu-sched/ptx/flow.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {

// An address is `root`, or the beginning of `variable`, plus something from `low` to `high` that is a multiple of
// `alignment`.
struct AddressOrigin {
  std::string_view root;               // a register of 64 bits that inner blocks do not hide; empty: it is `variable`
  const Variable* variable = nullptr;  // of the module or the function
  bool generic = true;                 // what the variable's address was made is one that every load takes
  int64_t low = 0, high = 0;
  uint64_t alignment = uint64_t{1} << 32;
  const Instruction* made = nullptr;  // what writes the root
  bool once = false;                  // it is executed once at most, and the access more often
};

// Not thread-safe.
class GuardRoots {
 public:
  // All outlive it.
  GuardRoots(const Function& function, const Scope& scope, uint64_t slack);

  // From low to high, a multiple of the alignment.
  struct Bounds {
    int64_t low = 0, high = 0;
    uint64_t alignment = 1;
  };

  // Of the nth operand in brackets, which is a register of 64 bits. Nothing: it is its own root.
  std::optional<AddressOrigin> origin(const Instruction& instruction, size_t nth) const;
  // Of an operand of 64 bits, whenever the instruction is executed. Nothing: it may be more than the slack.
  std::optional<Bounds> bounds(const Instruction& instruction, size_t operand) const;

 private:
  static constexpr uint32_t kMany = UINT32_MAX, kNone = UINT32_MAX - 1;
  static constexpr int kDeepest = 64;

  void find_cycles();
  void find_dominators();
  bool is_hidden(std::string_view name) const;
  void find_places();
  bool dominates(uint32_t step, uint32_t later) const;
  bool still_holds(uint32_t definition, uint32_t use, uint32_t access) const;
  uint32_t definition(uint32_t node) const { return node < definitions_.size() ? definitions_[node] : kMany; }
  std::optional<uint32_t> register_read(const Step& step, size_t operand) const;
  // Of what is read by the step `use`: its node, and how it is called.
  std::optional<AddressOrigin> follow(uint32_t node, std::string_view name, uint32_t use, uint32_t access,
                                      int depth) const;
  std::optional<AddressOrigin> derived(uint32_t at, uint32_t access, int depth) const;
  std::optional<AddressOrigin> sum(uint32_t at, size_t pointer, const std::optional<Bounds>& added, uint32_t access,
                                   int depth) const;
  std::optional<Bounds> bounds(uint32_t at, size_t operand, int depth) const;
  std::optional<Bounds> bounds_of(const Instruction& i, uint32_t at, int depth) const;

  const Scope& scope_;
  const int64_t slack_;
  std::set<std::string_view> inner_;            // names that inner blocks declare
  std::vector<std::string_view> inner_ranges_;  // and beginnings of names
  const Flow flow_;
  const Control control_;
  std::unordered_map<const Instruction*, uint32_t> steps_;
  std::vector<uint32_t> definitions_;   // by node: the only step that writes it
  std::vector<uint32_t> joins_;         // by step: how many steps up to it are jumped to
  std::vector<bool> in_cycle_;          // by step, or more
  std::vector<uint32_t> above_;         // by step: the next dominator
  std::vector<uint32_t> first_, last_;  // by step: among all, where those begin and end that it dominates
  mutable std::unordered_map<uint32_t, std::optional<Bounds>> known_bounds_;  // by step
  bool known_ = true;
};

}  // namespace bandsaw::ptx
