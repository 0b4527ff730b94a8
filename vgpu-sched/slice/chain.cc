#include "vgpu-sched/slice/chain.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace bandsaw::slice {
namespace {

// Mean warps at the two queues, and the throughputs, for a number of warps of each kernel.
struct Cell {
  double at_issue = 0;
  double at_memory = 0;
  double ipc_a = 0;
  double ipc_b = 0;
};

// One step of the recursion: `less_a` and `less_b` are the cells with one warp less of a or b.
Cell step(const Demand& a, int warps_a, const Cell& less_a, const Demand& b, int warps_b, const Cell& less_b) {
  Cell cell;
  const auto add = [&cell](const Demand& demand, int warps, const Cell& less) {
    if (warps <= 0) return 0.0;
    const double issue = demand.issue * (1 + less.at_issue);
    const double memory = demand.memory * (1 + less.at_memory);
    const double ipc = warps / (demand.delay + issue + memory);
    cell.at_issue += ipc * issue;
    cell.at_memory += ipc * memory;
    return ipc;
  };
  cell.ipc_a = add(a, warps_a, less_a);
  cell.ipc_b = add(b, warps_b, less_b);
  return cell;
}

Cell mean(const Cell& low, const Cell& high, double part) {
  const auto mix = [part](double from, double to) { return from + (to - from) * part; };
  return {.at_issue = mix(low.at_issue, high.at_issue),
          .at_memory = mix(low.at_memory, high.at_memory),
          .ipc_a = mix(low.ipc_a, high.ipc_a),
          .ipc_b = mix(low.ipc_b, high.ipc_b)};
}

}  // namespace

ChainResult solve_one(const Demand& a, double warps) { return solve_two(a, warps, Demand{}, 0); }

ChainResult solve_two(const Demand& a, double warps_a, const Demand& b, double warps_b) {
  warps_a = std::clamp(warps_a, 0.0, static_cast<double>(kMaxWarps));
  warps_b = std::clamp(warps_b, 0.0, static_cast<double>(kMaxWarps));
  const int last_a = static_cast<int>(std::ceil(warps_a));
  const int last_b = static_cast<int>(std::ceil(warps_b));
  std::array<Cell, kMaxWarps + 1> before;  // the row with one warp less of a
  std::array<Cell, kMaxWarps + 1> row;
  for (int i = 0; i <= last_a; ++i) {
    if (i > 0) std::copy_n(row.begin(), last_b + 1, before.begin());
    for (int j = 0; j <= last_b; ++j) {
      row[j] = step(a, i, before[j], b, j, j > 0 ? row[j - 1] : before[j]);
    }
  }
  const int floor_b = static_cast<int>(warps_b);
  const double part_a = last_a > 0 ? 1 - (last_a - warps_a) : 1;
  const double part_b = warps_b - floor_b;
  const auto across = [&](const std::array<Cell, kMaxWarps + 1>& cells) {
    return mean(cells[floor_b], cells[last_b], part_b);
  };
  const Cell cell = last_a > 0 ? mean(across(before), across(row), part_a) : across(row);
  return {.ipc_a = cell.ipc_a,
          .ipc_b = cell.ipc_b,
          .issue = cell.ipc_a * a.issue + cell.ipc_b * b.issue,
          .memory = cell.ipc_a * a.memory + cell.ipc_b * b.memory};
}

double delay_for(double issue, double memory, double warps, double ipc) {
  double low = 0;
  double high = ipc > 0 ? warps / ipc : 0;  // with no queue at all
  if (solve_one({.issue = issue, .delay = 0, .memory = memory}, warps).ipc_a <= ipc) return 0;
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    const double got = solve_one({.issue = issue, .delay = middle, .memory = memory}, warps).ipc_a;
    (got > ipc ? low : high) = middle;
  }
  return (low + high) / 2;
}

double delay_for_half(double issue, double memory, double warps, double speed) {
  double low = 0;
  double high = 64 * std::max(issue, memory) * warps;  // no queue to speak of: half the warps, half the speed
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    const Demand demand{.issue = issue, .delay = middle, .memory = memory};
    const double got = solve_one(demand, warps / 2).ipc_a / solve_one(demand, warps).ipc_a;
    (got > speed ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace bandsaw::slice
