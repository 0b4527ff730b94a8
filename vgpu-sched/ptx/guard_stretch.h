// Where the addresses of a stretch of guarded code come from, as far as the stretch itself makes them. Inside of this
// folder only.
//
// What is looked at in front of a stretch is what is known there: registers that it does not write before, what is less
// than the slack away from them, and what can be made there already, of these registers alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "vgpu-sched/ptx/guard_roots.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {

// A register that the stretch has written is `root`, as it was in front of the stretch, plus something.
struct StretchOrigin {
  std::string root;
  GuardRoots::Bounds added;
};

class StretchAddresses {
 public:
  // Both outlive it.
  StretchAddresses(const GuardRoots& roots, const Scope& scope) : roots_(roots), scope_(scope) {}

  // The next instruction, which is the stretch's `at`-th statement.
  void pass(size_t at, const Instruction& instruction);

  bool is_untouched(std::string_view name) const { return !written_.contains(name); }
  // Null: it is not known.
  const StretchOrigin* origin(std::string_view name) const;
  // The statements that make the register and can be executed in front of the stretch; null: there are none.
  const std::set<size_t>* makers(std::string_view name) const;

 private:
  using Names = std::set<std::string, std::less<>>;
  void follow(const Instruction& instruction, const std::string& result);
  void try_early(size_t at, const Instruction& instruction, const std::string& result, const Names& reads);

  const GuardRoots& roots_;
  const Scope& scope_;
  Names read_, written_;
  std::map<std::string, StretchOrigin, std::less<>> origins_;
  std::map<std::string, std::set<size_t>, std::less<>> makers_;
};

}  // namespace bandsaw::ptx
