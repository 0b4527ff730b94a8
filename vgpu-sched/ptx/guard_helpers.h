// The functions that guarded code calls where an address is not in the area. Inside of this folder only.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/guard.h"

namespace bandsaw::ptx {

// $ stands for the prefix; all are called by the text that guard_call() makes.
//   .func (.param .b32 may) $reach(.param .b64 address, .param .b32 bytes, .param .b32 alignment - 1)
//   .func (.param .b32 may) $target(.param .b64 function)   if there are calls through pointers
//   .func $fail(.param .b64 address, .param .b32 error)   reports; ends the thread once there were many
class GuardHelpers {
 public:
  GuardHelpers(const Module& module, const GuardArea& area, std::string prefix);

  void declare(Module* module) const;  // before what calls them
  void define(Module* module) const;   // behind the module's variables
  // Sets %$s to the end of the block's shared memory, as an address there.
  static std::string shared_end_text(const Module& module);

 private:
  std::string target_text() const;
  std::string reach_text() const;
  std::string fail_text() const;
  void add(Module* module, std::string text) const;

  const GuardArea area_;
  const std::string prefix_, shared_end_;
  std::vector<const Variable*> variables_;  // whose addresses code may have
  std::vector<const Function*> functions_;  // whose addresses code may have
  bool parameters_ = false;                 // generic addresses of parameters are taken
  bool pointers_ = false;                   // functions are called through pointers
};

// Calls "$" + function with a register of 64 bits and others of 32; %$ok gets what it returns, if it does.
std::string guard_call(const std::string& function, const std::string& wide, std::initializer_list<const char*> others,
                       bool returns);

// Around text that is not executed where an instruction with this guard is not; `label` makes its own.
std::string unless(const std::optional<Guard>& guard, const std::string& text, const std::string& label);

// A name of the module's in such text.
std::string own_name(std::string_view name);
// Statements from text, in which $ stands for the prefix.
std::vector<Statement> guard_statements(std::string text, const std::string& prefix);

}  // namespace bandsaw::ptx
