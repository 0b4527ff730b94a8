// One kernel, or one function that pointers name, with what it calls: read from its part of the module's text, and made
// into object code.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/glance.h"
#include "backend/device/soft/codegen/jit.h"
#include "backend/device/soft/codegen/timing_code.h"
#include "backend/device/soft/compile.h"
#include "vgpu-sched/ptx/outline.h"

namespace bandsaw::soft {

// What units of one module share. All must outlive them.
struct UnitSource {
  const ptx::Outline* outline;
  const Parts* parts;  // nullptr: each unit has all functions of the module
  uint64_t window_base;
  const std::map<std::string, uint32_t>* function_numbers;

  std::string text(const ptx::Outline::Definition& root, bool keep_lines) const;
};

class Unit {
 public:
  // Throws ParseError or CompileError.
  Unit(const UnitSource& source, const ptx::Outline::Definition& root);

  KernelCode description();  // of a kernel; throws CompileError
  // Of a kernel; empty: it is too long to be recorded. Throws CompileError.
  timing::Code timing_code();
  // Defines the symbol of the root. `record`: a kernel's code records what its warps do.
  std::vector<char> generate(Target* target, bool record);
  static std::string symbol(const ptx::Outline& outline, const std::string& name);

 private:
  void place_shared();
  CodeLayout layout(const std::set<const FlatFunction*>& functions) const;

  const UnitSource source_;
  const ptx::Module tree_;
  FlatModule flat_;
  const FlatFunction* root_ = nullptr;
};

}  // namespace bandsaw::soft
