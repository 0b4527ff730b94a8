#include "vgpu-sched/slice/preemption.h"

#include <algorithm>
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

// Of those that keep the bound the one that loses least.
Candidate choose_for_block(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t which,
                           double bound_ns, Preemptions allowed) {
  Candidate within, fastest;
  for (const Preemption technique : kTechniques) {
    if (!(allowed & only(technique))) continue;
    const Candidate one{technique, preemption_cost(costs, sm, which, technique)};
    if (one.cost.latency_ns < fastest.cost.latency_ns) fastest = one;
    if (one.cost.latency_ns <= bound_ns && one.cost.lost < within.cost.lost) within = one;
  }
  if (within.cost.lost < kInfinite) return within;
  const Candidate saved{Preemption::kSwitch, preemption_cost(costs, sm, which, Preemption::kSwitch)};
  const bool may_switch = allowed & only(Preemption::kSwitch) && saved.cost.latency_ns < kInfinite;
  return may_switch ? saved : fastest;
}

SmPreemption choose_for_sm(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t number,
                           double bound_ns, Preemptions allowed) {
  SmPreemption chosen{.sm = number, .blocks = {}, .cost = {}};
  for (std::size_t block = 0; block < sm.size(); ++block) {
    const Candidate one = choose_for_block(costs, sm, block, bound_ns, allowed);
    chosen.blocks.push_back(one.technique);
    chosen.cost.latency_ns = std::max(chosen.cost.latency_ns, one.cost.latency_ns);
    chosen.cost.lost += one.cost.lost;
  }
  return chosen;
}

}  // namespace

PreemptionCost preemption_cost(const PreemptionCosts& costs, std::span<const RunningBlock> sm, std::size_t which,
                               Preemption technique) {
  const RunningBlock& block = sm[which];
  switch (technique) {
    case Preemption::kSwitch:
      if (costs.switch_ns <= 0 || costs.ns_per_work <= 0) return kImpossible;
      // The state is saved and loaded: no block of the SM gets anything done meanwhile.
      return {costs.switch_ns, 2 * costs.switch_ns / costs.ns_per_work};
    case Preemption::kDrain: {
      if (costs.block_work <= 0 || costs.ns_per_work <= 0) return kImpossible;
      double most = 0;
      for (const RunningBlock& other : sm) most = std::max(most, other.executed);
      // Its place is empty from its end to that of the one which is behind all others.
      const double whole = costs.block_work * (1 + costs.spread);
      return {std::max(0.0, whole - block.executed) * costs.ns_per_work, most - block.executed};
    }
    case Preemption::kFlush:
      return block.flushable ? PreemptionCost{0, block.executed} : kImpossible;
  }
  return kImpossible;
}

std::vector<SmPreemption> choose_preemptions(const PreemptionCosts& costs,
                                             std::span<const std::vector<RunningBlock>> sms, double bound_ns,
                                             std::size_t wanted, Preemptions allowed) {
  std::vector<SmPreemption> all;
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
