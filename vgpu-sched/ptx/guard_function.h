// One function of a guarded module. Inside of this folder only.
//
// Code is checked in stretches: what follows one another without a label, a branch, or an instruction that needs other
// threads. In front of a stretch, all addresses that it uses are checked together, by one branch. Where one of them is
// not in the area, a copy of the stretch runs instead that asks for each access by itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/guard.h"
#include "vgpu-sched/ptx/guard_access.h"
#include "vgpu-sched/ptx/guard_roots.h"
#include "vgpu-sched/ptx/guard_stretch.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {

class GuardedFunction {
 public:
  // All outlive it. `names`: of the module.
  GuardedFunction(const Module& module, const Scope& names, const Function& function, const GuardArea& area,
                  const std::string& prefix);

  Function run();
  const std::string& refusal() const { return refusal_; }

 private:
  // What a stretch needs of one register.
  struct Need {
    Space space = Space::kNone;
    std::string name;                    // of the register
    bool wide = true;                    // it has 64 bits
    bool symbol = false;                 // it is no register but a variable whose size only the launch knows
    const Variable* variable = nullptr;  // that the register points into; none: into the area
    int64_t low = 0;                     // the first byte touched, from the register
    int64_t high = 0;                    // the one behind the last
    uint32_t alignment = 1;
    uint32_t shift = 0;  // what is added to the register before its alignment counts
    uint32_t bit = 0;    // of %$mask: set where this was found wrong; 0: it is to be looked at here
    // The access itself, for the slow way:
    std::string at;
    int64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t own_alignment = 1;
    bool matrix = false;  // its last line begins at %$w, plus the offset
  };
  using Needs = std::vector<Need>;
  using Statements = std::vector<Statement>;

  Block block(const Block& from, const Scope& scope, bool outermost);
  // What a stretch is: where it ends, what is looked at in front of it, and which of its statements are executed
  // before.
  struct Stretch {
    size_t end = 0;
    Needs needs{};
    std::set<size_t> early{};
  };
  Stretch plan_stretch(const Block& from, size_t begin, const Scope& scope);
  bool place(const StretchAddresses& addresses, Need* need, std::set<size_t>* early) const;
  size_t stretch(const Block& from, size_t begin, const Scope& scope, Statements* to);
  void together(const Statement& from, const Scope& scope, Statements* to);
  bool special(const Statement& from, const Scope& scope, Statements* to);
  void end_thread(const Instruction& from, unsigned error, Statements* to);
  Needs needs_of(const Instruction& instruction, const Scope& scope);
  bool trace(const Instruction& instruction, size_t nth, Need* need) const;
  void find_masked();
  std::string mask_text(const Instruction& made);
  void emit(const Statement& statement, Statements* to);
  void merge(const Need& need, Needs* needs) const;
  std::string area_text(const Need& need, bool* any) const;
  std::string shared_text(const Need& need, bool* any) const;
  std::string check_text(const Needs& needs, const std::string& slow);
  std::string ask_text(const Need& need, const std::optional<Guard>& guard);
  std::string matrix_text(const Instruction& instruction, Needs* needs) const;
  void slowly(const Statement& from, const Scope& scope, Statements* to);
  std::string zero_text(const Operand& result, const Scope& scope, const std::string& guard) const;
  void add(const std::string& text, Statements* to) const;
  std::string next_label() { return std::to_string(labels_++); }

  const Module& module_;
  const Function& function_;
  const GuardArea& area_;
  const std::string& prefix_;
  const Scope scope_;
  const GuardRoots roots_;
  std::vector<Statements*> slow_;  // of the blocks around, the innermost last
  // What is looked at once, after it was made, and not in each round of a loop: a bit of %$mask each.
  std::map<const Instruction*, Needs> masked_;
  uint32_t bits_ = 0;  // of %$mask, given out
  std::string refusal_;
  uint32_t labels_ = 0;
  bool shared_ = false;  // %$s is used
};

}  // namespace bandsaw::ptx
