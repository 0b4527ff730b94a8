// Replays a launch's trace on a model of a GPU. Pure: the same trace and settings give the same cycles.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device/soft/timing/machine.h"
#include "backend/device/soft/timing/sm.h"
#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

struct Timing {
  uint64_t cycles = 0;       // that the simulated blocks take
  double launch_cycles = 0;  // that the whole grid would take on all SMs, if its other blocks are like these
  uint64_t blocks = 0;       // simulated
  uint32_t resident = 0;     // blocks that an SM has at once
  bool oversized = false;    // an SM has not the room for even one of the blocks, and was given it
  bool cut = false;          // the trace was, or the cycles reached their bound
  SmCounts sm;               // of all SMs, as the next
  LoadStoreCounts accesses;
  MemoryCounts memory;
  uint64_t scheduler_cycles = 0;  // cycles times schedulers
};

// Of another launch of the kernel: what can be counted together.
void add(const Timing& one, Timing* sum);

inline constexpr uint64_t kMostCycles = uint64_t{1} << 26;

Timing simulate(const LaunchTrace& launch, const Machine& machine, const Scheduling& scheduling,
                uint64_t most_cycles = kMostCycles);

}  // namespace bandsaw::soft::timing
