// Chimera's figures 4.5 to 4.8: the paper's kernels (table 4.2) on a simulated GPU of its size, from which a periodic
// task takes half of the SMs each millisecond. Which SMs, and how, production's algorithm says
// (vgpu-sched/slice/preemption.h); what becomes of it is simulated, with blocks whose true length it does not know.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "tools/benchmarks/research/figures/figures.h"
#include "vgpu-sched/slice/preemption.h"

namespace bandsaw::research {
namespace {

using namespace slice;

// Table 4.2: times in microseconds; `idempotent` is the part of a block before it first changes what it would read.
struct Victim {
  const char* benchmark;
  double drain, switching;
  int blocks;  // on an SM
  double idempotent;
};

constexpr Victim kVictims[] = {
    {"BS", 60.9, 17.0, 4, 1},       {"BT", 3.5, 15.9, 2, 0.47},   {"BT", 2.8, 18.7, 3, 0.46},
    {"BP", 3.1, 12.5, 6, 0.89},     {"BP", 1.8, 19.0, 5, 0.52},   {"CP", 746.9, 10.4, 8, 0.63},
    {"FWT", 2.3, 18.2, 5, 0.52},    {"FWT", 7.2, 14.5, 3, 0.90},  {"FWT", 321.8, 18.7, 6, 1},
    {"HW", 5.2, 23.4, 2, 0.90},     {"HS", 4.5, 19.7, 3, 1},      {"KM", 424.3, 10.4, 6, 1},
    {"KM", 118.8, 12.5, 6, 1},      {"LC", 1162.0, 20.9, 7, 1},   {"LC", 391.7, 13.5, 8, 1},
    {"LC", 10173.2, 15.2, 1, 0.99}, {"LUD", 17.4, 5.6, 8, 0.97},  {"LUD", 26.2, 8.1, 8, 0.94},
    {"LUD", 3.5, 16.6, 6, 0.80},    {"MUM", 10212.8, 18.7, 6, 1}, {"MUM", 76.4, 20.8, 5, 1},
    {"NW", 18.2, 11.1, 8, 0.96},    {"NW", 18.7, 11.1, 8, 0.96},  {"SAD", 42.3, 10.1, 8, 1},
    {"SAD", 82.9, 11.1, 8, 1},      {"SAD", 19.7, 2.8, 8, 1},     {"ST", 122.3, 15.9, 8, 1}};

constexpr int kSms = 30, kTaken = 15, kPeriods = 200;
constexpr double kPeriod = 1000, kTask = 200;  // microseconds
// Of the lengths of blocks, as a part of the mean: what progress in instructions leaves uncertain (section 4.3.2).
constexpr double kSpread = 0.01;

struct Policy {
  const char* name;
  Preemptions allowed = kAllPreemptions;
  double margin = 0;    // of blocks that drain, as PreemptionCosts::spread
  bool strict = false;  // flushes only kernels of which all is idempotent
};

struct Tally {
  double missed = 0, useful = 0, possible = 0;
  std::array<double, 3> blocks{};  // by technique
};

struct Block {
  double length = 0, done = 0;
};

// One kernel that never ends, of which half of the SMs are taken each period.
class Preempted {
 public:
  Preempted(const Victim& victim, const Policy& policy, double bound, std::uint64_t seed)
      : victim_(victim), policy_(policy), bound_(bound), random_(seed), sms_(kSms) {
    for (auto& sm : sms_) {
      for (int i = 0; i < victim.blocks; ++i) {
        sm.push_back(fresh());
        sm.back().done = sm.back().length * std::uniform_real_distribution<double>(0, 1)(random_);
      }
    }
  }

  Tally run() {
    for (int period = 0; period < kPeriods; ++period) {
      take();
      for (std::size_t sm = 0; sm < sms_.size(); ++sm) advance(sm, kPeriod - away_[sm]);
    }
    tally_.possible = double{kPeriod} * kPeriods * kSms * victim_.blocks;
    return tally_;
  }

 private:
  Block fresh() {
    const double length = 2 * victim_.drain * std::normal_distribution<double>(1, kSpread)(random_);
    return {std::max(0.2 * victim_.drain, length), 0};
  }

  // The SM works for so long, and begins new blocks.
  void advance(std::size_t sm, double time) {
    if (time <= 0) return;
    for (Block& block : sms_[sm]) {
      const double whole = std::floor(time / (2 * victim_.drain)) - 2;  // blocks that begin and end meanwhile
      double left = time - std::max(0.0, whole) * 2 * victim_.drain;
      for (; block.done + left >= block.length; block = fresh()) left -= block.length - block.done;
      block.done += left;
    }
    tally_.useful += time * victim_.blocks;
  }

  void take() {
    away_.assign(kSms, 0);
    std::vector<std::vector<RunningBlock>> seen;
    for (const auto& sm : sms_) {
      seen.emplace_back();
      for (const Block& block : sm) {
        const bool early = block.done < victim_.idempotent * block.length;
        seen.back().push_back({block.done, policy_.strict ? victim_.idempotent >= 1 : early});
      }
    }
    const PreemptionCosts costs{2 * victim_.drain, 1000, policy_.margin, victim_.switching * 1000};
    const auto chosen = choose_preemptions(costs, seen, bound_ * 1000, kTaken, policy_.allowed);
    double latest = 0;
    std::vector<double> free;
    for (const SmPreemption& one : chosen) free.push_back(latency(one));
    for (const double each : free) latest = std::max(latest, each);
    const bool missed = latest > bound_;
    tally_.missed += missed;
    for (std::size_t i = 0; i < chosen.size(); ++i) give_up(chosen[i], std::min(free[i], bound_ + kTask), missed);
  }

  // How long it truly takes until the SM is free.
  double latency(const SmPreemption& one) const {
    double longest = 0;
    for (std::size_t i = 0; i < one.blocks.size(); ++i) {
      const Block& block = sms_[one.sm][i];
      if (one.blocks[i] == Preemption::kSwitch) longest = std::max(longest, victim_.switching);
      if (one.blocks[i] == Preemption::kDrain) longest = std::max(longest, block.length - block.done);
    }
    return longest;
  }

  // What each of its blocks gets done until then is useful, but for what the missed task would have had.
  void give_up(const SmPreemption& one, double until, bool missed) {
    double loads = 0;
    for (std::size_t i = 0; i < one.blocks.size(); ++i) {
      Block& block = sms_[one.sm][i];
      ++tally_.blocks[static_cast<std::size_t>(one.blocks[i])];
      if (one.blocks[i] == Preemption::kSwitch) loads = victim_.switching;
      if (one.blocks[i] == Preemption::kFlush) {
        tally_.useful -= block.done;
        block = fresh();
      } else if (one.blocks[i] == Preemption::kDrain) {
        const double ran = std::min(block.length - block.done, until);
        tally_.useful += missed ? std::min(ran, bound_) : ran;
        block.done += ran;
        if (block.done >= block.length) block = fresh();
      }
    }
    away_[one.sm] = until + (missed ? std::max(0.0, bound_ + kTask - until) : kTask) + loads;
  }

  const Victim& victim_;
  const Policy& policy_;
  double bound_;
  std::mt19937_64 random_;
  std::vector<std::vector<Block>> sms_;
  std::vector<double> away_;  // of this period
  Tally tally_;
};

struct Mean {
  double missed = 0, overhead = 0;
  std::array<double, 3> part{};
};

// Over benchmarks; a benchmark's kernels count alike.
Mean mean_of(const Policy& policy, double bound) {
  std::map<std::string, std::vector<Mean>> benchmarks;
  std::uint64_t seed = 1;
  for (const Victim& victim : kVictims) {
    const Tally tally = Preempted(victim, policy, bound, seed++).run();
    const double all = tally.blocks[0] + tally.blocks[1] + tally.blocks[2];
    Mean one{100 * tally.missed / kPeriods, 100 * (1 - tally.useful / tally.possible), {}};
    for (std::size_t i = 0; i < 3; ++i) one.part[i] = 100 * tally.blocks[i] / all;
    benchmarks[victim.benchmark].push_back(one);
  }
  Mean mean;
  for (const auto& [name, kernels] : benchmarks) {
    const double weight = 1.0 / static_cast<double>(kernels.size() * benchmarks.size());
    for (const Mean& one : kernels) {
      mean.missed += weight * one.missed;
      mean.overhead += weight * one.overhead;
      for (std::size_t i = 0; i < 3; ++i) mean.part[i] += weight * one.part[i];
    }
  }
  return mean;
}

std::string microseconds(double bound) { return std::to_string(static_cast<int>(bound)) + " us"; }

}  // namespace

FigureValues chimera_bounds() {
  const Policy policies[] = {{"switch", only(Preemption::kSwitch)},
                             {"drain", only(Preemption::kDrain)},
                             {"flush", only(Preemption::kFlush)},
                             {"chimera"},
                             {"chimera with a margin", kAllPreemptions, 3 * kSpread}};
  FigureValues values;
  for (const double bound : {5.0, 10.0, 15.0, 20.0}) {
    for (const Policy& policy : policies) {
      const bool chimera = policy.allowed == kAllPreemptions && policy.margin == 0;
      if (bound != 15 && !chimera) continue;
      const Mean mean = mean_of(policy, bound);
      values.push_back({std::string("missed ") + policy.name, microseconds(bound), mean.missed});
      values.push_back({std::string("overhead ") + policy.name, microseconds(bound), mean.overhead});
      if (!chimera) continue;
      for (const auto& [name, which] : {std::pair("switched", 0u), {"drained", 1u}, {"flushed", 2u}})
        values.push_back({name, microseconds(bound), mean.part[which]});
    }
  }
  return values;
}

FigureValues chimera_idempotence() {
  // What may not be flushed ends by itself.
  const Policy policies[] = {{"strict", only(Preemption::kFlush), 0, true},
                             {"relaxed", only(Preemption::kFlush), 0, false}};
  FigureValues values;
  for (const Policy& policy : policies) values.push_back({"missed", policy.name, mean_of(policy, 15).missed});
  return values;
}

}  // namespace bandsaw::research
