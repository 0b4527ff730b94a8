#include "vgpu-sched/ptx/spin.h"

namespace bandsaw::ptx {

Spin spin_of(const ProgramFacts&, const Closure&) { return Spin::kNone; }

std::string why_not_cut(const ProgramFacts& facts, const Closure& closure) {
  if (spin_of(facts, closure) == Spin::kAny) return "may wait in a loop for blocks that come later in its grid";
  return "";
}

}  // namespace bandsaw::ptx
