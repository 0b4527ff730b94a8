// The Markov chain of warps on a virtual SM, for one kernel and for two that share it.
//
// A virtual SM is an SM divided by its warp schedulers, with as many parts of the bandwidth (Kernelet, section 4.3,
// "Adaptation to GPUs with Multiple Warp Schedulers"). A warp is ready or idle (section 4.3, "Homogeneous Workloads");
// ready warps of both kernels take turns at one issue slot per cycle ("Heterogeneous Workloads", equations 4 to 6); an
// idle warp waits for its memory latency, and then for its turn at the bandwidth, behind those which are there: that is
// the paper's linear latency L = a0 * x + b0 with a0 the time that one access takes of the bandwidth, x the accesses
// found waiting, b0 the latency without load.
//
// Coalesced and uncoalesced accesses are idle states of different mean times and sizes. Rather than a dense matrix and
// its eigenvector (equation 2: (w1+1)^2 (w2+1)^2 entries even without that distinction) the stationary state is taken
// from its product form: a closed network of two shared queues (issue, bandwidth) and a delay, whose stationary state
// depends on the delay's mean only, so that both kinds of access enter as their mean. It is found by the recursion over
// the number of warps (mean value analysis), birth by birth: (w1+1)(w2+1) steps. The unit test holds it against the
// eigenvector of the full chain.
//
// Two things a GPU was measured to do are no product form, and are approximated in the same recursion, where asked:
//
// - Accesses leave an SM partly in order: one finds a part of the work of all those before it in its way, large ones of
//   the other kernel too, and not just its share of the bandwidth (`in_order`, Demand::accesses).
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
ChainResult solve_one(const Demand& a, double warps);
// `older`: whose warps are issued first; kNeither: they take turns. `in_order`: the part of the bandwidth's queue, 0 to
// 1, that accesses wait for in order.
ChainResult solve_two(const Demand& a, double warps_a, const Demand& b, double warps_b, Older older = Older::kNeither,
                      double in_order = 0);

// The delay with which a kernel of so many warps has this IPC alone; 0 where none is short enough.
double delay_for(double issue, double memory, double warps, double ipc);
// The delay with which half the warps have this speed relative to all of them, 0.5 to 1.
double delay_for_half(double issue, double memory, double warps, double speed);

}  // namespace bandsaw::slice
