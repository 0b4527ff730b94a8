// Persistent blocks that can be told to drop the block which they run. Inside of this folder only.
#pragma once

#include <string>

#include "vgpu-sched/ptx/program_facts.h"
#include "vgpu-sched/ptx/slice.h"
#include "vgpu-sched/ptx/transplant.h"

namespace bandsaw::ptx {

// Where the threads of a block may leave it in its middle: one by one at branches that go back, or, where they meet,
// all together at the barriers of the whole block.
struct DropPlaces {
  std::string refusal;  // why nowhere; "": they may
  bool at_barriers = false;
};
DropPlaces drop_places(const ProgramFacts& facts, const Closure& closure);

// What the claim of persistent.cc has besides, as text: before it first claims; where a dropped block is put on the
// list; where one of the list is claimed.
struct FlushingClaim {
  std::string begin, keep, redo;
};
FlushingClaim flushing_claim(Flush flush);

// Puts polls of the flag where blocks may be dropped, and marks before what cannot be done again. How many polls.
// `told_apart`: of the block's own stop word too.
size_t insert_polls(const Transplant& moved, Flush flush, bool told_apart, bool at_barriers, Block* body);

}  // namespace bandsaw::ptx
