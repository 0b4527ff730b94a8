// Whether two kernels given to the hardware one right after the other run at the same time, and what that costs the
// second: the hardware gives the first all it can take, and the second what is left over.
//
// Pure functions; any thread. Source: Cruz et al., "Analyzing and Estimating the Performance of Concurrent Kernels
// Execution on GPUs", section 4 (algorithms 1 and 2, cases A, B and C) and section 5 (equations 1 to 3).
#pragma once

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

enum class Overlap : std::uint8_t {
  kFromStart,   // case A
  kLastRound,   // case B: the second begins when the first begins to give back
  kSequential,  // case C
};

// How the first kernel's blocks lie on the SMs, as far as they do not fill them all.
enum class Placement : std::uint8_t {
  kPacked,  // on as few SMs as hold them: the paper's nOccupied and nFree, equation 3
  kSpread,  // evenly over all SMs, as GPUs since Volta place them
};

struct OverlapKernel {
  BlockNeeds needs;
  Blocks blocks = 0;
  Time time = 0;  // alone
  // Of the issue slots of the SMs that it is on, the part that it uses alone, 0 to 1; 0: not known. Warps of the older
  // kernel are issued first, so beside one that keeps the slots busy the other one stands still.
  double issue = 0;
};

struct OverlapForecast {
  Overlap overlap = Overlap::kSequential;
  Blocks rounds = 0;          // of the second alone: equation 1
  Blocks limited_rounds = 0;  // beside the first: equation 3; case A only
  // Of the second, by equation 2: as if the first ran as long as the second. 1 in cases B and C, where the paper gives
  // no figure: it runs as alone once it has begun.
  double slowdown = 1;
  // Beyond the paper, from the times: when the second begins, and how long from the first's start to the second's end,
  // in units of the second's time alone; in case A the first leaves after its time and the rest goes at full speed.
  // With `issue` known: beside a first that uses up the issue slots the second has the SMs that it leaves early, and
  // ends with it or later; beside another it has the slots that are left; and a second which uses them up is as fast
  // with few blocks on an SM as with many. (As measured on an H200; on the paper's K40 room was all that counted.)
  Time begins = 0;
  double slowdown_timed = 1;
};

// `launch`: time between the two launches. Kernels whose block fits no SM, or of no blocks: kSequential.
OverlapForecast forecast_overlap(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second,
                                 Time launch, Placement placement = Placement::kSpread);

}  // namespace bandsaw::slice
