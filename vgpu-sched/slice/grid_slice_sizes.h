// How many blocks a grid slice has: of a kernel alone, and of two kernels beside each other.
//
// Pure functions. Source: Kernelet, section 4.3: balanced grid slice ratio, equation 7.
#pragma once

#include <vector>

#include "vgpu-sched/slice/planner.h"

namespace bandsaw::slice {

// For a kernel that runs by itself: at least its minimum, and at least a wave. A kernel that may not be sliced goes
// whole.
Part grid_slices_alone(const CoRunModel& model, const ReadyKernel& kernel);

// Numbers of blocks of a and b that fill an SM together: neither can have one more. At most `most` of these ratios (0:
// all), the extremes included.
struct Ratio {
  int a = 0;
  int b = 0;
};
std::vector<Ratio> ratios_of(const GpuModel& gpu, const Fit& a, const Fit& b, int most);

// Grid slices of two kernels that take equally long with so many blocks on each SM and at the forecast's speeds. Each
// takes at least as long as its minimum alone.
struct GridSlices {
  Blocks a = 0;
  Blocks b = 0;
};
GridSlices balanced_grid_slices(const GpuModel& gpu, const Fit& a, int resident_a, Blocks minimum_a, const Fit& b,
                                int resident_b, Blocks minimum_b, const PairForecast& forecast);

}  // namespace bandsaw::slice
