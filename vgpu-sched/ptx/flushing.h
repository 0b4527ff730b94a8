// Persistent blocks that can be told to drop the block which they run. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/slice.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {

// Why threads of a block cannot leave it one by one in its middle; "": they can.
std::string why_not_flushed(const ProgramFacts& facts, const Closure& closure);

// What the claim of persistent.cc has besides, as text: before it first claims; where a dropped block is put on the
// list; where one of the list is claimed.
struct FlushingClaim {
  std::string begin, keep, redo;
};
FlushingClaim flushing_claim(Flush flush);

// Puts polls of the flag before branches that go back, and marks before what cannot be done again. How many polls.
// `told_apart`: of the block's own stop word too.
size_t insert_polls(const Transplant& moved, Flush flush, bool told_apart, Block* body);

}  // namespace bandsaw::ptx
