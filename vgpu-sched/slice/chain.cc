#include "vgpu-sched/slice/chain.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace bandsaw::slice {
namespace {

// Mean warps at the two queues and the throughput of one kernel, for a number of warps of each.
struct Side {
  double at_issue = 0;   // weighted by the cycles of each
  double at_memory = 0;  // warps
  double ipc = 0;
};

struct Cell {
  Side a, b;
  double backlog = 0;  // cycles of bandwidth that those at the memory ask for
};

struct Rules {
  Older older;
  double in_order;
};

// Cycles at the issue slot of one instruction, with one warp less of `demand` there.
double issue_time(const Demand& demand, const Side& own, const Demand& other, const Side& others, bool first,
                  bool last) {
  const double behind_own = demand.issue * (1 + own.at_issue);
  if (first) return behind_own;
  if (!last) return behind_own + demand.issue * others.at_issue;
  constexpr double kLeast = 1e-3;  // of the slots, is always left
  return (behind_own + other.issue * others.at_issue) / std::max(kLeast, 1 - others.ipc * other.issue);
}

double memory_time(const Demand& demand, const Cell& less, double in_order) {
  const double part = demand.accesses > 0 ? in_order : 0;
  const double shared = demand.memory * (1 + (1 - part) * (less.a.at_memory + less.b.at_memory));
  return shared + demand.accesses * part * less.backlog;
}

// One kernel's side of a cell; `less` is the cell with one warp less of it.
Side side(const Demand& demand, int warps, const Cell& less, bool is_a, const Demand& other, const Rules& rules,
          double* backlog) {
  if (warps <= 0) return {};
  const bool first = rules.older == (is_a ? Older::kFirstKernel : Older::kSecondKernel);
  const bool last = rules.older == (is_a ? Older::kSecondKernel : Older::kFirstKernel);
  const Side& own = is_a ? less.a : less.b;
  const double issue = issue_time(demand, own, other, is_a ? less.b : less.a, first, last);
  const double memory = memory_time(demand, less, rules.in_order);
  const double ipc = warps / (demand.delay + issue + memory);
  *backlog += ipc * memory * (demand.accesses > 0 ? demand.memory / demand.accesses : demand.memory);
  return {.at_issue = ipc * issue, .at_memory = ipc * memory, .ipc = ipc};
}

// Throughputs between two cells.
Cell mean(const Cell& low, const Cell& high, double part) {
  const auto mix = [part](double from, double to) { return from + (to - from) * part; };
  Cell cell;
  cell.a.ipc = mix(low.a.ipc, high.a.ipc);
  cell.b.ipc = mix(low.b.ipc, high.b.ipc);
  return cell;
}

}  // namespace

ChainResult solve_one(const Demand& a, double warps) { return solve_two(a, warps, Demand{}, 0); }

ChainResult solve_two(const Demand& a, double warps_a, const Demand& b, double warps_b, Older older, double in_order) {
  const Rules rules{.older = older, .in_order = in_order};
  warps_a = std::clamp(warps_a, 0.0, static_cast<double>(kMaxWarps));
  warps_b = std::clamp(warps_b, 0.0, static_cast<double>(kMaxWarps));
  const int last_a = static_cast<int>(std::ceil(warps_a));
  const int last_b = static_cast<int>(std::ceil(warps_b));
  std::array<Cell, kMaxWarps + 1> before;  // the row with one warp less of a
  std::array<Cell, kMaxWarps + 1> row;
  for (int i = 0; i <= last_a; ++i) {
    if (i > 0) std::copy_n(row.begin(), last_b + 1, before.begin());
    for (int j = 0; j <= last_b; ++j) {
      Cell cell;
      cell.a = side(a, i, before[j], true, b, rules, &cell.backlog);
      if (j > 0) cell.b = side(b, j, row[j - 1], false, a, rules, &cell.backlog);
      row[j] = cell;
    }
  }
  const int floor_b = static_cast<int>(warps_b);
  const double part_a = last_a > 0 ? 1 - (last_a - warps_a) : 1;
  const double part_b = warps_b - floor_b;
  const auto across = [&](const std::array<Cell, kMaxWarps + 1>& cells) {
    return mean(cells[floor_b], cells[last_b], part_b);
  };
  const Cell cell = last_a > 0 ? mean(across(before), across(row), part_a) : across(row);
  return {.ipc_a = cell.a.ipc,
          .ipc_b = cell.b.ipc,
          .issue = cell.a.ipc * a.issue + cell.b.ipc * b.issue,
          .memory = cell.a.ipc * a.memory + cell.b.ipc * b.memory};
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
