#include "vgpu-sched/slice/preemption.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace bandsaw::slice {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr PreemptionCost kImpossible{kInfinite, kInfinite};
constexpr Preemption kTechniques[] = {Preemption::kSwitch, Preemption::kDrain, Preemption::kFlush};

struct Candidate {
  Preemption technique = Preemption::kDrain;
  PreemptionCost cost = kImpossible;
};

double furthest(std::span<const RunningBlock> sm) {
  double most = 0;
  for (const RunningBlock& block : sm) most = std::max(most, block.executed);
  return most;
}

// `most`: what the block of its SM that is furthest has done.
PreemptionCost cost_of(const PreemptionCosts& costs, const RunningBlock& block, double most, Preemption technique) {
  switch (technique) {
    case Preemption::kSwitch:
      if (costs.switch_ns <= 0 || costs.ns_per_work <= 0) return kImpossible;
      // The state is saved and loaded: no block of the SM gets anything done meanwhile.
      return {costs.switch_ns, 2 * costs.switch_ns / costs.ns_per_work};
    case Preemption::kDrain: {
      if (costs.block_work <= 0 || costs.ns_per_work <= 0) return kImpossible;
      // Its place is empty from its end to that of the one which is behind all others.
      const double whole = costs.block_work * (1 + costs.spread);
      return {std::max(0.0, whole - block.executed) * costs.ns_per_work, most - block.executed};
    }
    case Preemption::kFlush:
      return block.flushable ? PreemptionCost{0, block.executed} : kImpossible;
  }
  return kImpossible;
}

// Of those that keep the bound the one that loses least.
Candidate choose_for_block(const PreemptionCosts& costs, const RunningBlock& block, double most, double bound_ns,
                           Preemptions allowed) {
  PreemptionCost all[std::size(kTechniques)];
  std::size_t within = std::size(kTechniques), fastest = 0;
  double least = kInfinite;
  for (std::size_t i = 0; i < std::size(kTechniques); ++i) {
    all[i] = allowed & only(kTechniques[i]) ? cost_of(costs, block, most, kTechniques[i]) : kImpossible;
    if (all[i].latency_ns < all[fastest].latency_ns) fastest = i;
    if (all[i].latency_ns > bound_ns || all[i].lost >= least) continue;
    within = i;
    least = all[i].lost;
  }
  if (within == std::size(kTechniques)) within = all[0].latency_ns < kInfinite ? 0 : fastest;  // 0: to switch
  // Where nothing can be done it ends.
  return {all[within].latency_ns < kInfinite ? kTechniques[within] : Preemption::kDrain, all[within]};
}

SmPreemption choose_for_sm(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t number,
                           double bound_ns, Preemptions allowed) {
  SmPreemption chosen{.sm = number, .blocks = {}, .cost = {}};
  chosen.blocks.reserve(sm.size());
  const double most = furthest(sm);
  for (const RunningBlock& block : sm) {
    const Candidate one = choose_for_block(costs, block, most, bound_ns, allowed);
    chosen.blocks.push_back(one.technique);
    chosen.cost.latency_ns = std::max(chosen.cost.latency_ns, one.cost.latency_ns);
    chosen.cost.lost += one.cost.lost;
  }
  return chosen;
}

}  // namespace

PreemptionCost preemption_cost(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t which,
                               Preemption technique) {
  return cost_of(costs, sm[which], furthest(sm), technique);
}

std::vector<SmPreemption> choose_preemptions(const PreemptionCosts& costs,
                                             std::span<const std::vector<RunningBlock>> sms, double bound_ns,
                                             std::size_t wanted, Preemptions allowed) {
  std::vector<SmPreemption> all;
  all.reserve(sms.size());
  for (std::size_t sm = 0; sm < sms.size(); ++sm) all.push_back(choose_for_sm(costs, sms[sm], sm, bound_ns, allowed));
  const auto late =
      std::partition(all.begin(), all.end(), [&](const SmPreemption& one) { return one.cost.latency_ns <= bound_ns; });
  std::sort(all.begin(), late, [](const SmPreemption& a, const SmPreemption& b) {
    return std::pair(a.cost.lost, a.sm) < std::pair(b.cost.lost, b.sm);
  });
  std::sort(late, all.end(), [](const SmPreemption& a, const SmPreemption& b) {
    return std::pair(a.cost.latency_ns, a.sm) < std::pair(b.cost.latency_ns, b.sm);
  });
  all.resize(std::min(wanted, all.size()));
  return all;
}

}  // namespace bandsaw::slice
