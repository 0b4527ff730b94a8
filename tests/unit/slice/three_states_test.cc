// Warps in three states (ready, idle on a coalesced access, idle on a scattered one) against warps in two, whose
// accesses count by their mean: which of them forecasts better what an SM does that serves accesses in order, and what
// is chosen by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "tests/unit/slice/sm_simulator.h"
#include "vgpu-sched/slice/chain.h"

namespace bandsaw::slice {
namespace {

constexpr int kWarps = 16;
constexpr double kLeast = 1.02;  // as PlannerOptions::least_profit has it

// How forecasts see a kernel: with the delay that gives it the speed which it has alone.
struct View {
  bool three;
  double in_order;

  Demand of(const SmKernel& kernel, double ipc) const {
    const double accesses = kernel.coalesced + kernel.scattered;
    const double scattered = kernel.scattered * kernel.scattered_cycles;
    Demand demand{.issue = 1, .memory = kernel.coalesced * kernel.coalesced_cycles + scattered, .accesses = accesses};
    if (three) {
      demand.scattered = kernel.scattered / accesses;
      demand.scattered_memory = scattered / demand.memory;
    }
    demand.delay = delay_for(demand, kWarps, std::min(ipc, 0.98 / std::max(1.0, demand.memory)), in_order);
    return demand;
  }
};

struct Judged {
  double error = 0;   // mean, of the speed of each
  double chosen = 0;  // mean throughput of the ratio that is forecast best, of one after the other
  int losing = 0;     // choices below that
};

class ThreeStates : public testing::Test {
 protected:
  ThreeStates() {
    for (const double delay : {4.0, 20.0, 60.0})
      for (const double coalesced : {0.0, 0.05, 0.2, 0.4})
        for (const double scattered : {0.0, 0.01, 0.05, 0.1})
          if (coalesced + scattered > 0)
            kernels_.push_back({.delay = delay,
                                .coalesced = coalesced,
                                .scattered = scattered,
                                .coalesced_cycles = 2,
                                .scattered_cycles = 16});
    for (const SmKernel& kernel : kernels_) alone_.push_back(SmSimulator(kernel, kWarps, kernel, 0).run(50000).first);
    for (std::size_t a = 0; a < kernels_.size(); ++a)
      for (std::size_t b = a + 1; b < kernels_.size(); ++b) measure(a, b);
  }

  Judged judge(const View& view) const {
    std::vector<Demand> demands;
    for (std::size_t i = 0; i < kernels_.size(); ++i) demands.push_back(view.of(kernels_[i], alone_[i]));
    Judged judged;
    for (const Pair& pair : pairs_) {
      double best = kLeast, got = 1;
      for (const Ratio& ratio : pair.ratios) {
        const Demand &a = demands[pair.a], &b = demands[pair.b];
        const ChainResult both = solve_two(a, ratio.warps, b, kWarps - ratio.warps, Older::kNeither, view.in_order);
        const double speed_a = both.ipc_a / solve_one(a, kWarps, view.in_order).ipc_a;
        const double speed_b = both.ipc_b / solve_one(b, kWarps, view.in_order).ipc_a;
        judged.error += std::abs(speed_a / ratio.speed_a - 1) + std::abs(speed_b / ratio.speed_b - 1);
        if (speed_a + speed_b <= best) continue;
        best = speed_a + speed_b;
        got = ratio.speed_a + ratio.speed_b;
      }
      judged.chosen += got;
      judged.losing += got < 0.995 ? 1 : 0;
    }
    const auto count = static_cast<double>(pairs_.size());
    judged.error /= 2 * count * static_cast<double>(pairs_[0].ratios.size());
    judged.chosen /= count;
    return judged;
  }

 private:
  struct Ratio {
    int warps;
    double speed_a, speed_b;
  };
  struct Pair {
    std::size_t a, b;
    std::vector<Ratio> ratios;
  };

  void measure(std::size_t a, std::size_t b) {
    Pair pair{a, b, {}};
    for (int warps = 2; warps < kWarps; warps += 4) {
      const auto [ipc_a, ipc_b] = SmSimulator(kernels_[a], warps, kernels_[b], kWarps - warps).run(10000);
      pair.ratios.push_back({warps, ipc_a / alone_[a], ipc_b / alone_[b]});
    }
    pairs_.push_back(std::move(pair));
  }

  std::vector<SmKernel> kernels_;
  std::vector<double> alone_;
  std::vector<Pair> pairs_;
};

TEST_F(ThreeStates, ForecastAndChooseBetterWhereAccessesAreServedInOrder) {
  const Judged shared = judge({.three = false, .in_order = 0}), mean = judge({.three = false, .in_order = 1}),
               three = judge({.three = true, .in_order = 1});
  for (const auto& [name, one] : {std::pair{"two, shared", shared}, {"two, in order", mean}, {"three", three}})
    std::printf("states: %s: mean error %.1f %%, chosen %.4f, losing %d\n", name, 100 * one.error, one.chosen,
                one.losing);
  EXPECT_LT(three.error, mean.error);
  EXPECT_LT(three.error, shared.error);
  EXPECT_GT(three.chosen, mean.chosen);
  EXPECT_GT(three.chosen, shared.chosen);
  EXPECT_LE(three.losing, mean.losing);
  EXPECT_LT(three.losing, shared.losing);
}

TEST(ThreeStatesOfOneKernel, AreTwoWhereAccessesAreAlike) {
  const Demand plain{.issue = 1, .delay = 9, .memory = 1.5, .accesses = 0.2};
  Demand all = plain;
  all.scattered = all.scattered_memory = 1;
  for (const double in_order : {0.0, 0.3, 1.0}) {
    EXPECT_NEAR(solve_one(all, 12, in_order).ipc_a, solve_one(plain, 12, in_order).ipc_a, 1e-9);
    // Nobody waits in order: only the mean counts, whatever the sizes.
    Demand some = plain;
    some.scattered = 0.1;
    some.scattered_memory = 0.6;
    if (in_order == 0) {
      EXPECT_NEAR(solve_one(some, 12, 0).ipc_a, solve_one(plain, 12, 0).ipc_a, 1e-9);
    } else {
      EXPECT_LT(solve_one(some, 12, in_order).ipc_a, solve_one(plain, 12, in_order).ipc_a);
    }
  }
}

}  // namespace
}  // namespace bandsaw::slice
