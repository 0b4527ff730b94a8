// How many persistent blocks each of several kernels has on an SM: each round the kernel that would end last gets more,
// until nothing fits. These numbers may change while the kernels run.
//
// Source: Bashizade et al., "Adaptive Simultaneous Multi-tenancy for GPUs", sections 3.5 (pruned configurations) and
// 3.6 (algorithm 1, equation 1).
#pragma once

#include <span>
#include <vector>

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

struct GreedyKernel {
  BlockNeeds needs;
  // times[c - 1]: nanoseconds of the whole kernel alone with c blocks on each SM; at least one entry. A c that is no
  // faster than a smaller one is never given.
  std::span<const double> times;
  double left = 1;  // the part of its blocks that has not run: (TBt - TBe) / TBt
};

// Blocks on each SM for each kernel, at least 1. If not even one of each fits, all get 1; the hardware lets those wait
// that do not fit.
std::vector<int> allocate_resident(const GpuModel& gpu, std::span<const GreedyKernel> kernels);

}  // namespace bandsaw::slice
