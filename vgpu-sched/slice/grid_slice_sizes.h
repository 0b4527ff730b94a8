// How large grid slices are: of a kernel alone, and of two beside each other.
//
// Pure functions. Source: Kernelet, section 4.3: balanced grid slice ratio, equation 7.
#pragma once

#include <vector>

#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

// Grid slices of a kernel that runs by itself: at least its minimum, at least a wave. One that may not be sliced goes
// whole.
Part grid_slices_alone(const CoRunModel& model, const ReadyKernel& kernel);

// Ratios of blocks that fill an SM: each with the most of b that fits beside a, and the other way round, within what
// the two have at most. At most `most` of them (0: all), the extremes included.
struct Ratio {
  int a = 0;
  int b = 0;
};
std::vector<Ratio> ratios_of(const GpuModel& gpu, const Fit& a, const Fit& b, int most);

// Grid slices of two kernels that end together, at these residencies and speeds, each as long as its minimum alone at
// least.
struct GridSlices {
  Blocks a = 0;
  Blocks b = 0;
};
GridSlices balanced_grid_slices(const GpuModel& gpu, const Fit& a, int resident_a, Blocks minimum_a, const Fit& b,
                                int resident_b, Blocks minimum_b, const PairForecast& forecast);

}  // namespace bandsaw::slice
