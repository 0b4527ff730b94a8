// Control flow and divergence of one function: in which order blocks run, which of them may run with only some of the
// lanes, where those lanes come together again, and which registers hold one value for all lanes.
//
// A region is the set of blocks between a divergent branch and its stop, the block that every lane reaches next
// unless it exits. Inside a region lanes are scheduled in groups; at the stop all active lanes are together.
#pragma once

#include <vector>

#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/codegen/graph.h"

namespace bandsaw::soft {

struct Region {
  int stop = -1;            // block; -1: the lanes meet no more
  std::vector<int> blocks;  // in scheduling order
  bool rotating = false;    // lanes may wait for each other: groups take turns
  bool gathering = false;   // has blocks that begin with a *.sync instruction or a barrier
};

struct Analysis {
  std::vector<int> order;      // reachable blocks, reverse post-order, loops contiguous
  std::vector<int> position;   // block -> index in order, -1 when unreachable
  std::vector<bool> varying;   // per register
  std::vector<int> region_of;  // per block; -1: runs with all active lanes
  std::vector<int> index_in_region;
  std::vector<Region> regions;
  std::vector<bool> in_cycle;  // per block
  std::vector<bool> read;      // per register: something uses it
  std::vector<bool> spins;     // per block: in a cycle with memory that others may change
  std::vector<bool> exposed;   // per register: live into some block
  std::vector<bool> single;    // per register: one definition, and it dominates all uses

  std::vector<BitSet> live;     // per block: registers that it or a later one reads before they are written
  std::vector<uint32_t> joins;  // per register: blocks of regions that it is live into, where lanes meet or part

  bool partial(int block) const { return region_of[block] >= 0; }
  bool needs_blend(int block, int reg) const;
};

Analysis analyse(const FlatFunction& function);

}  // namespace bandsaw::soft
