// One kernel, or one function that pointers name, with what it calls: read from its part of the module's text, and made
// into object code.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/glance.h"
#include "backend/device/soft/codegen/jit.h"
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
  // Defines the symbol of the root.
  std::vector<char> generate(Target* target);
  static std::string symbol(const ptx::Outline& outline, const std::string& name);

 private:
  void place_shared();

  const UnitSource source_;
  const ptx::Module tree_;
  FlatModule flat_;
  const FlatFunction* root_ = nullptr;
};

}  // namespace bandsaw::soft
