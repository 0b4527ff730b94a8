// A module made ready for rewriting: who calls whom, which variables are used where. Made once per module, then asked
// for as many kernels as there are.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// Why a kernel stays as it is, for people: "waits for other blocks of its grid at one point".
struct Refusal {
  std::string reason;
};

// A variable of the original module that a rewritten kernel goes on to use: a u64 parameter at byte `at` of the packed
// parameter block takes its address (cuModuleGetGlobal; in the global window also for a .const variable).
struct BorrowedVariable {
  std::string name;
  size_t at = 0;
};

struct ProgramFacts;  // the inside: program_facts.h

// Immutable, so any thread may use it. Linear in the size of the module to make.
class Program {
 public:
  // Several units are to be linked before (link.h), managed variables to be placed (managed.h) if they ever are.
  explicit Program(Module module);
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  const Module& module() const;
  // The kernels that have a body, in order. They view the Program.
  std::vector<std::string_view> kernels() const;
  const ProgramFacts& facts() const { return *facts_; }

 private:
  std::unique_ptr<const ProgramFacts> facts_;
};

}  // namespace bandsaw::ptx
