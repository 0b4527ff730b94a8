#include "vgpu-sched/slice/grid_slice_sizes.h"

#include <algorithm>
#include <cmath>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

constexpr double kMostRows = 1e15;  // more blocks than any grid has, and no overflow

constexpr double kLongestSlice = 256;  // waves beside one wave of much longer blocks

Blocks whole_rows(double blocks, int sms) {
  const auto rows = static_cast<Blocks>(std::clamp(std::round(blocks / sms), 1.0, kMostRows));
  return rows * static_cast<Blocks>(sms);
}

}  // namespace

Part grid_slices_alone(const CoRunModel& model, const ReadyKernel& kernel) {
  Part part{.kernel = kernel.id};
  if (kernel.minimum == 0) return part;
  const Fit* fit = model.fit(kernel.shape);
  const Blocks wave = fit != nullptr ? static_cast<Blocks>(fit->resident) * model.gpu().sms : 0;
  part.slice = std::max(kernel.minimum, wave);
  return part;
}

std::vector<Ratio> ratios_of(const GpuModel& gpu, const Fit& a, const Fit& b, int most) {
  std::vector<Ratio> all;
  for (int count = 1; count <= a.resident; ++count) {
    const Room room = beside(gpu, room_of(gpu), a.profile.needs, count);
    const int other = std::min(fit(gpu, room, b.profile.needs), b.resident);
    if (other == 0) break;
    if (!all.empty() && all.back().b == other) all.pop_back();  // more of a at no cost
    all.push_back({.a = count, .b = other});
  }
  const auto size = static_cast<int>(all.size());
  if (most <= 0 || size <= most) return all;
  std::vector<Ratio> some;
  for (int i = 0; i < most; ++i) some.push_back(all[i * (size - 1) / std::max(most - 1, 1)]);
  return some;
}

GridSlices balanced_grid_slices(const GpuModel& gpu, const Fit& a, int resident_a, Blocks minimum_a, const Fit& b,
                                int resident_b, Blocks minimum_b, const PairForecast& forecast) {
  double blocks_a = static_cast<double>(resident_a) * gpu.sms;
  double blocks_b = static_cast<double>(resident_b) * gpu.sms;
  const double time_a = blocks_a * a.profile.block_ns / std::max(forecast.speed_a, 1e-3);
  const double time_b = blocks_b * b.profile.block_ns / std::max(forecast.speed_b, 1e-3);
  const double ratio = std::clamp(time_b / time_a, 1 / kLongestSlice, kLongestSlice);
  if (ratio > 1) blocks_a *= ratio;
  if (ratio < 1) blocks_b /= ratio;
  // What a grid slice costs is to be a part of its time: beside another, fewer blocks take as long.
  const double least_a = static_cast<double>(minimum_a) * std::clamp(forecast.speed_a, 0.0, 1.0);
  const double least_b = static_cast<double>(minimum_b) * std::clamp(forecast.speed_b, 0.0, 1.0);
  const double scale = std::max({1.0, least_a / blocks_a, least_b / blocks_b});
  return {.a = whole_rows(blocks_a * scale, gpu.sms), .b = whole_rows(blocks_b * scale, gpu.sms)};
}

}  // namespace bandsaw::slice
