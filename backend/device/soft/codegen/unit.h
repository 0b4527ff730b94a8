// One kernel, or one function that is compiled apart, with what it calls: read from its part of the module's text, and
// made into object code. Apart are functions that pointers name, in large modules, and long ones, once for all that
// call them by name.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
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
  const std::map<std::string, uint32_t>* function_numbers;
  const CompileOptions* options;

  std::string text(const ptx::Outline::Definition& root, bool keep_lines) const;
};

using Analyses = std::function<const Analysis&(const FlatFunction&)>;

class Unit {
 public:
  // Throws ParseError or CompileError.
  Unit(const UnitSource& source, const ptx::Outline::Definition& root);

  KernelCode description() const;  // of a kernel; throws CompileError
  // Of a kernel; empty: it is too long to be recorded. Throws CompileError.
  timing::Code timing_code();
  bool in_pieces() const { return pieces() != nullptr; }  // where it records nothing
  // Defines the symbol of the root. `record`: a kernel's code records what its warps do. Of a long kernel that records
  // nothing this is the entry alone, which has its pieces compiled when they are needed.
  std::vector<char> generate(Target* target, bool record) const;
  // One of those; defines piece_symbol(). Thread-safe.
  std::vector<char> generate_piece(Target* target, uint32_t piece) const;
  static std::string symbol(const ptx::Outline& outline, const std::string& name);

 private:
  void place_as_all_parts();
  CodeLayout layout(const std::set<const FlatFunction*>& functions) const;
  const Analysis& analysis(const FlatFunction& function) const;
  Analyses analyses() const;
  const Pieces* pieces() const;  // of the root; null: it is not so long

  const UnitSource source_;
  const ptx::Module tree_;
  FlatModule flat_;
  const FlatFunction* root_ = nullptr;
  std::set<std::string> apart_;  // functions that are called by name and are not in this object
  mutable std::mutex mutex_;     // guards the next two, which stay as they are once they are there
  mutable std::map<const FlatFunction*, Analysis> analyses_;
  mutable std::optional<Pieces> pieces_;
};

}  // namespace bandsaw::soft
