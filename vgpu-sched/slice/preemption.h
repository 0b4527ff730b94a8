// How to take SMs from a kernel that runs: which SMs, and by which technique from each of their blocks. Each technique
// costs latency (until the SM is free) and lost work; the least loss is chosen that keeps a bound of latency.
//
// Pure functions; any thread. Source: Park, "Enabling efficient resource utilization on multitasking throughput
// processors", sections 4.3.2 (costs) and 4.3.3 (algorithm 3).
#pragma once

#include <span>
#include <vector>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

enum class Preemption : std::uint8_t {
  kSwitch,  // save the block's state, and go on with it later
  kDrain,   // let it end, and begin no other on its SM
  kFlush,   // drop it, and run it again from its start: only while it has changed nothing that it would read
};

// Which techniques there are, as bits.
using Preemptions = std::uint8_t;
constexpr Preemptions only(Preemption technique) {
  return static_cast<Preemptions>(1u << static_cast<unsigned>(technique));
}
inline constexpr Preemptions kAllPreemptions = 7;

// A block that runs. Work is in any unit that blocks of the kernel have alike: instructions of warps, or nanoseconds.
struct RunningBlock {
  double executed = 0;     // work that it has done
  bool flushable = false;  // it could be run again now
};

// What was measured of the kernel. 0: not known, and what needs it counts as infinitely dear.
struct PreemptionCosts {
  double block_work = 0;   // of a whole block, the mean
  double ns_per_work = 0;  // of one block among those resident with it
  double spread = 0;       // by how much of that blocks may take longer: a margin for those that drain, 0 in the paper
  double switch_ns = 0;    // to save the state of all blocks of an SM; loading it takes as long
};

struct PreemptionCost {
  double latency_ns = 0;
  double lost = 0;  // work
};

// Of the block at `which` of an SM's. Infinite: it cannot be, or nothing is known of it.
PreemptionCost preemption_cost(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t which,
                               Preemption technique);

struct SmPreemption {
  std::size_t sm = 0;
  std::vector<Preemption> blocks;  // for each of its blocks
  PreemptionCost cost;             // the longest latency and the sum of what is lost
};

// Takes `wanted` SMs, or all if there are fewer: first those that keep the bound, by what is lost; if these do not
// suffice, the others, by their latency (algorithm 3 leaves the request unanswered then). A block for which no allowed
// technique keeps the bound is switched, as in algorithm 3; where switching is not allowed or not known, it has the
// technique of the least latency, and an SM that holds a block which cannot be taken at all comes last.
std::vector<SmPreemption> choose_preemptions(const PreemptionCosts& costs,
                                             std::span<const std::vector<RunningBlock>> sms, double bound_ns,
                                             std::size_t wanted, Preemptions allowed = kAllPreemptions);

}  // namespace bandsaw::slice
