#include "vgpu-sched/slice/overlap.h"

#include <algorithm>
#include <cmath>

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

// Of the issue slots: who uses as many has used them up.
constexpr double kBusy = 0.9;

// Of the SMs in a round of the first: those on which the second finds room, beside it or without it.
struct Room {
  Blocks beside = 0, without = 0;
};

Room sms_with_room(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, Blocks blocks) {
  const auto sms = static_cast<Blocks>(gpu.sms);
  const auto each = static_cast<int>(blocks / sms);
  const Blocks odd = blocks % sms;
  const Blocks fits_each = beside_first(gpu, first, second, each),
               fits_odd = beside_first(gpu, first, second, each + 1);
  Room room;
  if (fits_odd > 0) room.beside = odd;
  if (fits_each > 0) (each > 0 ? room.beside : room.without) += sms - odd;
  return room;
}

// The case, equations 1 to 3, and when the second begins.
OverlapForecast by_room(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, Time launch,
                        Placement placement) {
  OverlapForecast forecast;
  const int active_first = resident_blocks(gpu, first.needs);
  const int active_second = resident_blocks(gpu, second.needs);
  if (active_first == 0 || active_second == 0 || first.blocks == 0 || second.blocks == 0) return forecast;
  const Blocks wave_first = static_cast<Blocks>(active_first) * gpu.sms;
  const Blocks wave_second = static_cast<Blocks>(active_second) * gpu.sms;
  forecast.rounds = rounds_of(second.blocks, wave_second);
  forecast.begins = first.time;
  if (first.time <= launch) return forecast;  // over before the second is launched
  const Blocks last = first.blocks % wave_first;
  const Blocks room = last > 0 ? left_over(gpu, first, second, active_first, last, placement) : 0;
  if (room == 0) return forecast;
  if (first.blocks > wave_first) {
    forecast.overlap = Overlap::kLastRound;
    forecast.begins -= first.time / static_cast<Time>(rounds_of(first.blocks, wave_first));
    return forecast;
  }
  forecast.overlap = Overlap::kFromStart;
  forecast.begins = 0;
  forecast.limited_rounds = rounds_of(second.blocks, room);
  forecast.slowdown = static_cast<double>(forecast.limited_rounds) / static_cast<double>(forecast.rounds);
  return forecast;
}

// Until the second's end, from the first's start: what the first leaves of the SMs before it ends is the second's, and
// what of it lies beside the first stands still until then.
double beside_busy(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, Blocks rounds) {
  const auto blocks = static_cast<double>(first.blocks), sms = static_cast<double>(gpu.sms);
  const double most = std::ceil(blocks / sms);  // on an SM, in all rounds
  const auto time = static_cast<double>(first.time), alone = static_cast<double>(second.time);
  const double left = time * (1 - blocks / (sms * most));
  return time + std::max(alone - left, alone / static_cast<double>(rounds));
}

// How much slower than alone the second is while the first lasts: by its room or, if a few warps do for it, by the SMs
// where it has any; and by what the first leaves of the issue slots.
double slowdown_beside(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, const Room& room,
                       double by_rounds) {
  const auto sms = static_cast<double>(std::max<Blocks>(room.beside + room.without, 1));
  const double by_room = second.issue >= kBusy ? static_cast<double>(gpu.sms) / sms : by_rounds;
  return room.beside > 0 ? std::max(by_room, second.issue / (1 - std::min(first.issue, kBusy))) : by_room;
}

// As beside_busy, whoever is busy.
double end_of_second(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second, Time launch,
                     const OverlapForecast& forecast) {
  const auto alone = static_cast<double>(second.time);
  const Blocks wave = static_cast<Blocks>(resident_blocks(gpu, first.needs)) * gpu.sms;
  const Room room = sms_with_room(gpu, first, second, first.blocks % wave);
  const bool meet = forecast.overlap != Overlap::kFromStart || room.beside > 0;
  if (first.issue >= kBusy && meet && first.time > launch) return beside_busy(gpu, first, second, forecast.rounds);
  if (forecast.overlap != Overlap::kFromStart) return static_cast<double>(forecast.begins) + alone;
  const double slowdown = slowdown_beside(gpu, first, second, room, forecast.slowdown);
  const double beside = std::min(alone * slowdown, static_cast<double>(first.time));
  return beside + alone - beside / slowdown;
}

}  // namespace

OverlapForecast forecast_overlap(const GpuModel& gpu, const OverlapKernel& first, const OverlapKernel& second,
                                 Time launch, Placement placement) {
  OverlapForecast forecast = by_room(gpu, first, second, launch, placement);
  if (forecast.rounds == 0) return forecast;
  OverlapKernel other = second;
  other.time = std::max<Time>(second.time, 1);
  forecast.slowdown_timed = end_of_second(gpu, first, other, launch, forecast) / static_cast<double>(other.time);
  return forecast;
}

}  // namespace bandsaw::slice
