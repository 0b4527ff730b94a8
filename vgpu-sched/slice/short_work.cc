#include "vgpu-sched/slice/short_work.h"

#include <algorithm>
#include <cmath>

#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

constexpr double kWeight = 0.25;  // of a new measurement
constexpr double kMostCorrection = 64;

// The GPU without the blocks of all that runs but `skipped`.
GpuModel without(const GpuModel& gpu, std::span<const RunningKernel> running, std::size_t skipped) {
  Room room = room_of(gpu);
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (i == skipped) continue;
    room = beside(gpu, room, running[i].needs, std::clamp(running[i].resident, 0, fit(gpu, room, running[i].needs)));
  }
  GpuModel rest = gpu;
  rest.threads = room.threads;
  rest.warps = room.warps;
  rest.blocks = room.blocks;
  rest.registers = room.registers;
  rest.shared = room.shared;
  return rest;
}

// As the second of two launches, of which the first is the kernel with most blocks, on what the others leave.
OverlapForecast beside_first(const GpuModel& rest, const RunningKernel& first, int resident,
                             const OverlapKernel& work) {
  const OverlapKernel older{.needs = first.needs,
                            .blocks = static_cast<Blocks>(resident) * static_cast<Blocks>(rest.sms),
                            .time = std::max<Time>(first.left, 1),
                            .issue = first.issue};
  return forecast_overlap(rest, older, work, 0);
}

}  // namespace

ShortWorkForecast forecast_short_work(const GpuModel& gpu, std::span<const RunningKernel> running,
                                      const OverlapKernel& work) {
  ShortWorkForecast forecast;
  const auto most = std::max_element(running.begin(), running.end(),
                                     [](const auto& a, const auto& b) { return a.resident < b.resident; });
  if (most == running.end() || most->resident <= 0) {
    forecast.room = true;
    return forecast;
  }
  const RunningKernel& first = *most;
  const GpuModel rest = without(gpu, running, static_cast<std::size_t>(most - running.begin()));
  const int resident = std::min(first.resident, resident_blocks(rest, first.needs));
  const OverlapForecast now = beside_first(rest, first, resident, work);
  forecast.room = now.overlap == Overlap::kFromStart;
  forecast.slowdown = std::max(work.time > 0 ? now.slowdown_timed : now.slowdown, 1.0);
  if (forecast.room) return forecast;
  for (const RunningKernel& one : running) forecast.begins = std::max(forecast.begins, one.left);
  for (int way = 1; 2 * way <= resident && forecast.make_way == 0; ++way) {
    if (beside_first(rest, first, resident - way, work).overlap != Overlap::kFromStart) continue;
    forecast.make_way = way;
    forecast.cost = static_cast<double>(resident) / (resident - way);
  }
  return forecast;
}

Time ShortWorkTimes::alone(const Key& key) const {
  const auto found = shapes_.find(key);
  return found == shapes_.end() ? 0 : found->second.alone;
}

double ShortWorkTimes::correction(const Key& key) const {
  const auto found = shapes_.find(key);
  return found == shapes_.end() ? 1 : found->second.correction;
}

// Of an owner that has too many, the one that was not used for longest makes place.
ShortWorkTimes::Shape& ShortWorkTimes::place(const Key& key) {
  auto found = shapes_.find(key);
  if (found == shapes_.end()) {
    std::size_t count = 0;
    auto oldest = shapes_.end();
    for (auto it = shapes_.lower_bound({key.first, 0}); it != shapes_.end() && it->first.first == key.first; ++it) {
      ++count;
      if (oldest == shapes_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (count >= kMost) shapes_.erase(oldest);
    found = shapes_.emplace(key, Shape{}).first;
  }
  found->second.used = ++uses_;
  return found->second;
}

void ShortWorkTimes::learn_alone(const Key& key, Time took) {
  if (took <= 0) return;
  Shape& shape = place(key);
  const auto before = static_cast<double>(shape.alone);
  shape.alone = before > 0 ? static_cast<Time>(before + kWeight * (static_cast<double>(took) - before)) : took;
}

void ShortWorkTimes::learn_beside(const Key& key, Time forecast, Time took) {
  if (forecast <= 0 || took <= 0) return;
  Shape& shape = place(key);
  const double ratio = static_cast<double>(took) / static_cast<double>(forecast);
  // By logarithms: twice as long and half as long weigh the same.
  shape.correction = std::clamp(shape.correction * std::pow(ratio, kWeight), 1 / kMostCorrection, kMostCorrection);
  const double error = std::abs(static_cast<double>(forecast - took)) / static_cast<double>(took);
  error_ = judged_ == 0 ? error : error_ + kWeight * (error - error_);
  ++judged_;
}

void ShortWorkTimes::forget_owner(std::uint64_t owner) {
  const auto begin = shapes_.lower_bound({owner, 0});
  auto end = begin;
  while (end != shapes_.end() && end->first.first == owner) ++end;
  shapes_.erase(begin, end);
}

}  // namespace bandsaw::slice
