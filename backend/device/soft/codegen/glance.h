// What the text of a large module's kernels and functions says without being parsed: enough to compile each of them by
// itself, with what it calls by name, beside others that are compiled later or never.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/outline.h"

namespace bandsaw::soft {

struct Glance {
  std::set<std::string> callees;  // by name; a comment may add some
  bool calls_pointers = false;
  std::vector<std::string> memory;  // declarations of .local and .shared variables
};
Glance glance(std::string_view body);

// Immutable, after one look at all functions. `outline` must outlive it.
class Parts {
 public:
  // `module_shared`: bytes of shared variables at module level. Throws ParseError and CompileError.
  Parts(const ptx::Outline& outline, uint32_t module_shared);

  // The definition and all that it calls by name, to any depth.
  std::set<const ptx::Outline::Definition*> closure(const ptx::Outline::Definition& root) const;
  // Where the shared variables of a function lie, and how many bytes those of the module and all functions take.
  uint32_t shared_base(const std::string& function) const;
  uint32_t fixed_shared_bytes() const { return fixed_shared_bytes_; }
  // What a call of a pointer may take at most of a lane's local memory.
  uint32_t local_bytes_behind_pointers() const { return behind_pointers_; }
  // Some function calls pointers itself, so that how deep calls go is not known.
  bool pointers_call_pointers() const { return nested_; }

 private:
  uint32_t depth(const ptx::Outline::Definition& function, std::set<const ptx::Outline::Definition*>* stack);

  const ptx::Outline& outline_;
  std::map<const ptx::Outline::Definition*, std::vector<const ptx::Outline::Definition*>> callees_;
  std::map<const ptx::Outline::Definition*, uint32_t> local_bytes_, depth_;
  std::map<std::string, uint32_t> shared_bases_;
  uint32_t fixed_shared_bytes_ = 0, behind_pointers_ = 0;
  bool nested_ = false;
};

}  // namespace bandsaw::soft
