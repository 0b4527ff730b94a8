#include "vgpu-sched/slice/overlap.h"

#include <algorithm>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

Blocks rounds_of(Blocks blocks, Blocks at_once) { return blocks / at_once + (blocks % at_once != 0 ? 1 : 0); }

// Blocks of the second that lie on an SM beside `count` of the first.
Blocks beside_first(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, int count) {
  return static_cast<Blocks>(fit(gpu, beside(gpu, room_of(gpu), first.needs, count), second.needs));
}

// Blocks of the second which the whole GPU holds beside `blocks` of the first, at most one full round of them.
Blocks left_over(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, int active,
                 Blocks blocks, Placement placement) {
  const auto sms = static_cast<Blocks>(gpu.sms);
  const Blocks each = placement == Placement::kPacked ? static_cast<Blocks>(active) : blocks / sms;
  const Blocks full = placement == Placement::kPacked ? blocks / each : sms - blocks % sms;
  const Blocks odd = placement == Placement::kPacked ? (blocks % each != 0 ? 1 : 0) : blocks % sms;
  const Blocks on_odd = placement == Placement::kPacked ? blocks % each : each + 1;
  Blocks count = full * beside_first(gpu, first, second, static_cast<int>(each));
  if (odd > 0) count += odd * beside_first(gpu, first, second, static_cast<int>(on_odd));
  return count + (sms - full - odd) * beside_first(gpu, first, second, 0);
}

}  // namespace

OverlapForecast forecast_overlap(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second,
                                 Time launch, Placement placement) {
  OverlapForecast forecast;
  const int active_first = resident_blocks(gpu, first.needs);
  const int active_second = resident_blocks(gpu, second.needs);
  if (active_first == 0 || active_second == 0 || first.blocks == 0 || second.blocks == 0) return forecast;
  const Blocks wave_first = static_cast<Blocks>(active_first) * gpu.sms;
  const Blocks wave_second = static_cast<Blocks>(active_second) * gpu.sms;
  forecast.rounds = rounds_of(second.blocks, wave_second);
  const double alone = static_cast<double>(std::max<Time>(second.time, 1));
  const auto after = [&](Time begins) {
    forecast.begins = begins;
    forecast.slowdown_timed = (static_cast<double>(begins) + alone) / alone;
  };
  after(first.time);
  if (first.time <= launch) return forecast;  // over before the second is launched
  const Blocks last = first.blocks % wave_first;
  const Blocks room = last > 0 ? left_over(gpu, first, second, active_first, last, placement) : 0;
  if (room == 0) return forecast;
  if (first.blocks > wave_first) {
    forecast.overlap = Overlap::kLastRound;
    const auto rounds = static_cast<Time>(rounds_of(first.blocks, wave_first));
    after(first.time - first.time / rounds);
    return forecast;
  }
  forecast.overlap = Overlap::kFromStart;
  forecast.limited_rounds = rounds_of(second.blocks, room);
  forecast.slowdown = static_cast<double>(forecast.limited_rounds) / static_cast<double>(forecast.rounds);
  forecast.begins = 0;
  const double limited = alone * forecast.slowdown;
  const double beside = std::min(limited, static_cast<double>(first.time));
  forecast.slowdown_timed = (beside + alone * (1 - beside / limited)) / alone;
  return forecast;
}

}  // namespace bandsaw::slice
