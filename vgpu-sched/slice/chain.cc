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

// What an instruction asks for by accesses of one kind. A warp that waits for one of them is in that kind's state.
struct Waiting {
  double accesses = 0;
  double memory = 0;
};

struct MemoryTime {
  double time = 0;   // from an instruction's accesses to their end
  double asked = 0;  // cycles of bandwidth that those who wait ask for, at one instruction a cycle
};

// Of the access that is being served, half is left on average, and large ones are found there more often than they
// come: for each instruction, how much less than the whole of it the others wait for. Where all are alike, nothing:
// their sizes vary by themselves.
double served_already(const Demand& demand) {
  if (demand.scattered <= 0 || demand.memory <= 0 || demand.accesses <= 0) return 0;
  const double mean = demand.memory / demand.accesses;
  const double scattered = demand.scattered_memory / demand.scattered;  // sizes, of the mean
  const double coalesced = demand.scattered < 1 ? (1 - demand.scattered_memory) / (1 - demand.scattered) : 0;
  const double found = mean * (demand.scattered_memory * scattered + (1 - demand.scattered_memory) * coalesced);
  return demand.memory * (found - std::max(mean, found / 2));
}

MemoryTime memory_time(const Demand& demand, const Cell& less, double in_order) {
  const double part = demand.accesses > 0 ? in_order : 0;
  const double scattered = demand.accesses * demand.scattered;
  const double scattered_memory = demand.memory * demand.scattered_memory;
  const Waiting kinds[] = {{demand.accesses - scattered, demand.memory - scattered_memory},
                           {scattered, scattered_memory}};
  MemoryTime all;
  for (const Waiting& kind : kinds) {
    const double shared = kind.memory * (1 + (1 - part) * (less.a.at_memory + less.b.at_memory));
    const double time = shared + kind.accesses * part * less.backlog;
    all.time += time;
    all.asked += time * (kind.accesses > 0 ? kind.memory / kind.accesses : kind.memory);
  }
  all.asked -= served_already(demand);
  return all;
}

// One kernel's side of a cell; `less` is the cell with one warp less of it.
Side side(const Demand& demand, int warps, const Cell& less, bool is_a, const Demand& other, const Rules& rules,
          double* backlog) {
  if (warps <= 0) return {};
  const bool first = rules.older == (is_a ? Older::kFirstKernel : Older::kSecondKernel);
  const bool last = rules.older == (is_a ? Older::kSecondKernel : Older::kFirstKernel);
  const Side& own = is_a ? less.a : less.b;
  const double issue = issue_time(demand, own, other, is_a ? less.b : less.a, first, last);
  const MemoryTime memory = memory_time(demand, less, rules.in_order);
  const double ipc = warps / (demand.delay + issue + memory.time);
  *backlog += ipc * memory.asked;
  return {.at_issue = ipc * issue, .at_memory = ipc * memory.time, .ipc = ipc};
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

ChainResult solve_one(const Demand& a, double warps, double in_order) {
  return solve_two(a, warps, Demand{}, 0, Older::kNeither, in_order);
}

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

double delay_for(const Demand& demand, double warps, double ipc, double in_order) {
  Demand tried = demand;
  const auto with = [&](double delay) {
    tried.delay = delay;
    return solve_one(tried, warps, in_order).ipc_a;
  };
  double low = 0;
  double high = ipc > 0 ? warps / ipc : 0;  // with no queue at all
  if (with(0) <= ipc) return 0;
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    (with(middle) > ipc ? low : high) = middle;
  }
  return (low + high) / 2;
}

double delay_for_half(const Demand& demand, double warps, double speed, double in_order) {
  Demand tried = demand;
  double low = 0;
  // No queue to speak of: half the warps, half the speed.
  double high = 64 * std::max(demand.issue, demand.memory) * warps;
  for (int i = 0; i < 24; ++i) {
    tried.delay = (low + high) / 2;
    const double got = solve_one(tried, warps / 2, in_order).ipc_a / solve_one(tried, warps, in_order).ipc_a;
    (got > speed ? low : high) = tried.delay;
  }
  return (low + high) / 2;
}

}  // namespace bandsaw::slice
