// Which processes of a virtual GPU go first, and how long the time slices of the others are: the part of
// TimeSliceWeights that divides a virtual GPU's time among its own processes.
#include <algorithm>
#include <optional>

#include "vgpu-sched/policy/time_slice_weights.h"

namespace bandsaw::sched {

// It has work, or will soon: one with little work at a time counts in its pauses, too.
bool TimeSliceWeights::goes_on(const TimeSliceProcess& process) const {
  return now_ - process.last_busy <= options_.memory || (process.burst < kShortBurst && works(process));
}

void TimeSliceWeights::order_processes(Entry& entry) const {
  std::optional<int> highest;
  for (const auto& [number, process] : entry.processes) {
    if (goes_on(process)) highest = std::max(process.priority, highest.value_or(process.priority));
  }
  entry.later_processes = 0;
  for (auto& [number, process] : entry.processes) {
    process.later = highest && process.priority < *highest;
    if (process.later && now_ - process.last_busy <= options_.memory) ++entry.later_processes;
  }
}

// Of `whole`, what a virtual GPU has in a round. Who goes first and uses less than its time slices leaves the rest:
// where other virtual GPUs have work, those that go later have it, or all of them together would have less.
TimeSliceWeights::Lengths TimeSliceWeights::divided(Time whole, const Entry& entry) const {
  const Time equal = std::max(whole / entry.active_processes, options_.least);
  const int later_processes = entry.later_processes;
  if (later_processes == 0) return {.first = equal};
  const Time most = std::min(options_.later_most / later_processes - options_.switch_cost,
                             whole / options_.later_part / later_processes);
  Time later = std::min(std::max(most, options_.least), equal);
  const auto first_processes = std::max<Time>(
      1, std::count_if(entry.processes.begin(), entry.processes.end(),
                       [this](const auto& process) { return !process.second.later && goes_on(process.second); }));
  const Time first = std::max((whole - later * later_processes) / first_processes, equal);
  if (active() > 1) {
    double used = 0;
    for (const auto& [number, process] : entry.processes) {
      if (!process.later && goes_on(process)) used += process.visit(first);
    }
    later = std::max(later, (whole - static_cast<Time>(used)) / later_processes);
  }
  return {.first = first, .later = later};
}

Time TimeSliceWeights::slice(VgpuId vgpu, std::uint32_t process) const {
  const auto found = entries_.find(vgpu);
  if (found == entries_.end()) return 0;
  const auto one = found->second.processes.find(process);
  return one == found->second.processes.end() ? found->second.slice : found->second.slice_of(one->second);
}

bool TimeSliceWeights::orders_processes() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry.second.active && entry.second.later_processes > 0; });
}

}  // namespace bandsaw::sched
