// The Markov chain of warps on a virtual SM, for one kernel and for two that share it.
//
// A virtual SM is one warp scheduler of an SM with its part of the bandwidth (Kernelet, section 4.3, "Adaptation to
// GPUs with Multiple Warp Schedulers"). A warp is ready or idle (section 4.3, "Homogeneous Workloads"). Ready warps of
// both kernels take turns at one issue slot per cycle ("Heterogeneous Workloads", equations 4 to 6). An idle warp waits
// for its memory latency, and then for its turn at the bandwidth, behind the accesses that wait already. That is the
// paper's linear latency L = a0 * x + b0: a0 is the time that one access takes of the bandwidth, x the number of
// accesses found waiting, b0 the latency without load.
//
// The paper computes the stationary state as the eigenvector of a dense matrix (equation 2), which has (w1+1)^2
// (w2+1)^2 entries even if all accesses are alike. Here it comes from the product form of a closed network: two shared
// queues (issue, bandwidth) and a delay. Only the delay's mean matters, so coalesced and uncoalesced accesses enter as
// their mean. Mean value analysis finds the state by a recursion over the number of warps, in (w1+1)(w2+1) steps. The
// unit test compares it with the eigenvector of the full chain.
//
// Two things a GPU was measured to do are no product form, and are approximated in the same recursion, where asked:
//
// - Accesses leave an SM partly in order. An access waits for a part of all accesses before it, including large ones of
//   the other kernel, and not just for its own share of the bandwidth (`in_order`, Demand::accesses). Then it matters
//   how large each access is, not only the mean, so a warp has the paper's three states ("Uncoalesced Access"): ready,
//   idle on a coalesced access, idle on a scattered one (Demand::scattered).
// - A scheduler issues from its oldest warps first: the younger kernel's get what the older one leaves (`older`; a
//   preemptive priority, after Bryant et al., "The MVA priority approximation", 1984).
//
// Pure functions; any thread; no allocation.
#pragma once

#include <cstdint>

namespace bandsaw::slice {

// The most warps of one kernel on a virtual SM; more are taken as so many.
inline constexpr int kMaxWarps = 32;

// What one instruction of a warp asks for, on average, in cycles of a virtual SM.
struct Demand {
  double issue = 1;     // of the issue slot
  double delay = 0;     // waits that nobody else lengthens: dependencies, barriers, latency of memory
  double memory = 0;    // of the virtual SM's part of the bandwidth
  double accesses = 0;  // in how many parts it asks for that; 0: they wait for nobody in order
  // Of the accesses, and of `memory`, the parts of those that are scattered, 0 to 1. 0: all are alike.
  double scattered = 0;
  double scattered_memory = 0;
};

// Whose blocks were there first.
enum class Older : std::uint8_t { kNeither, kFirstKernel, kSecondKernel };

struct ChainResult {
  double ipc_a = 0;   // instructions per cycle of a virtual SM: 0 to 1
  double ipc_b = 0;   // 0 for a kernel alone
  double issue = 0;   // use of the issue slots, 0 to 1: Kernelet's PUR of the whole
  double memory = 0;  // use of the bandwidth, 0 to 1: Kernelet's MUR of the whole
};

// `warps`: per virtual SM; a fraction is a mean of its two neighbours.
ChainResult solve_one(const Demand& a, double warps, double in_order = 0);
// `older`: whose warps are issued first; kNeither: they take turns. `in_order`: the part of the bandwidth's queue, 0 to
// 1, that accesses wait for in order.
ChainResult solve_two(const Demand& a, double warps_a, const Demand& b, double warps_b, Older older = Older::kNeither,
                      double in_order = 0);

// The delay with which a kernel of so many warps has this IPC alone, whatever delay `demand` has; 0 where none is short
// enough.
double delay_for(const Demand& demand, double warps, double ipc, double in_order = 0);
// The delay with which half the warps have this speed relative to all of them, 0.5 to 1.
double delay_for_half(const Demand& demand, double warps, double speed, double in_order = 0);

}  // namespace bandsaw::slice
