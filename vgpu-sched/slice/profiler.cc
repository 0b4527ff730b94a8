#include "vgpu-sched/slice/profiler.h"

#include <algorithm>

namespace bandsaw::slice {

void Profiler::Times::add(Blocks blocks, Time time) {
  if (blocks == 0 || time <= 0) return;
  each[count % kSamples] = static_cast<float>(static_cast<double>(time) / static_cast<double>(blocks));
  ++count;
}

double Profiler::Times::quartile() const {
  const auto size = std::min(count, kSamples);
  std::array<float, kSamples> sorted = each;
  std::nth_element(sorted.begin(), sorted.begin() + size / 4, sorted.begin() + size);
  return size > 0 ? static_cast<double>(sorted[size / 4]) : 0;
}

KernelProfile Profiler::profile() const {
  KernelProfile profile = profile_;
  profile.block_ns = full_.quartile();
  const double half = half_.quartile();
  if (half > 0) profile.half_speed = std::clamp(profile.block_ns / half, 0.5, 1.0);
  return profile;
}

}  // namespace bandsaw::slice
