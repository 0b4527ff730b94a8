// How good a schedule was.
//
// Source: Eyerman and Eeckhout, "System-level performance metrics for multiprogram workloads", as Bashizade et al. use
// them; total time as in Kernelet, section 5.1.
#pragma once

#include <span>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::research {

using namespace slice;

struct Outcome {
  Time arrived = 0;
  Time ended = 0;
  Time alone = 0;  // its length with the GPU to itself
};

// System throughput: jobs' worth of progress per unit of time, sum of alone / (ended - arrived). 1 is one after the
// other with none waiting; higher is better.
double system_throughput(std::span<const Outcome> outcomes);
// Average normalized turnaround time: mean of (ended - arrived) / alone; lower is better, 1 at best.
double normalized_turnaround(std::span<const Outcome> outcomes);
// From the first arrival to the last end.
Time total_time(std::span<const Outcome> outcomes);

}  // namespace bandsaw::research
