// Costs of taking SMs from a kernel, and Chimera's algorithm 3.
#include "vgpu-sched/slice/preemption.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bandsaw::slice {
namespace {

using Sm = std::vector<RunningBlock>;

// Blocks of 100 us; 15 us to save an SM's.
constexpr PreemptionCosts kCosts{.block_work = 100, .ns_per_work = 1000, .switch_ns = 15'000};
constexpr double kBound = 20'000;

std::vector<Preemption> how(const Sm& sm, double bound_ns = kBound, Preemptions allowed = kAllPreemptions,
                            const PreemptionCosts& costs = kCosts) {
  return choose_preemptions(costs, std::vector<Sm>{sm}, bound_ns, 1, allowed).at(0).blocks;
}

TEST(Preemption, ByProgress) {  // figure 4.3
  EXPECT_EQ(how({{5, true}}), std::vector{Preemption::kFlush});
  EXPECT_EQ(how({{50, true}}), std::vector{Preemption::kSwitch});
  EXPECT_EQ(how({{90, true}}), std::vector{Preemption::kDrain});
}

TEST(Preemption, EachBlockOfAnSmByItself) {
  EXPECT_EQ(how({{5, true}, {95, true}}), (std::vector{Preemption::kFlush, Preemption::kDrain}));
}

TEST(Preemption, NothingIsFlushedThatMayNotRunAgain) {
  EXPECT_EQ(how({{5, false}}), std::vector{Preemption::kSwitch});
  EXPECT_EQ(how({{5, false}}, 1), std::vector{Preemption::kSwitch});  // late, but taken
  EXPECT_EQ(how({{5, false}}, 1, only(Preemption::kDrain) | only(Preemption::kFlush)), std::vector{Preemption::kDrain});
}

TEST(Preemption, WhatDrainsWaitsForTheSlowest) {
  const Sm sm = {{80, false}, {95, false}};
  EXPECT_DOUBLE_EQ(preemption_cost(kCosts, sm, 0, Preemption::kDrain).latency_ns, 20'000);
  EXPECT_DOUBLE_EQ(preemption_cost(kCosts, sm, 0, Preemption::kDrain).lost, 15);
  EXPECT_DOUBLE_EQ(preemption_cost(kCosts, sm, 1, Preemption::kDrain).lost, 0);
  EXPECT_DOUBLE_EQ(preemption_cost(kCosts, {Sm{{150, false}}}, 0, Preemption::kDrain).latency_ns, 0);
}

TEST(Preemption, AMarginForBlocksThatTakeLonger) {
  PreemptionCosts costs = kCosts;
  costs.spread = 0.1;
  EXPECT_DOUBLE_EQ(preemption_cost(costs, Sm{{90, true}}, 0, Preemption::kDrain).latency_ns, 20'000);
  EXPECT_EQ(how({{85, true}}, kBound, kAllPreemptions, kCosts), std::vector{Preemption::kDrain});
  EXPECT_EQ(how({{85, true}}, kBound, kAllPreemptions, costs), std::vector{Preemption::kSwitch});
}

TEST(Preemption, WhatIsNotKnownIsNotChosen) {
  const PreemptionCosts nothing{};
  EXPECT_TRUE(std::isinf(preemption_cost(nothing, Sm{{5, true}}, 0, Preemption::kDrain).latency_ns));
  EXPECT_TRUE(std::isinf(preemption_cost(nothing, Sm{{5, true}}, 0, Preemption::kSwitch).latency_ns));
  EXPECT_EQ(how({{5, true}}, kBound, kAllPreemptions, nothing), std::vector{Preemption::kFlush});
  EXPECT_EQ(choose_preemptions(nothing, std::vector<Sm>{{{5, false}}}, kBound, 1).size(), 1u);
}

TEST(Preemption, TheCheapestSmsThatKeepTheBound) {
  const std::vector<Sm> sms = {{{40, true}}, {{2, true}}, {{99, true}}, {{50, false}}};
  const auto chosen = choose_preemptions(kCosts, sms, kBound, 2);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].sm, 2u);
  EXPECT_EQ(chosen[1].sm, 1u);
  EXPECT_DOUBLE_EQ(chosen[1].cost.lost, 2);
}

TEST(Preemption, MoreThanKeepTheBoundAreTakenByTheirLatency) {
  const std::vector<Sm> sms = {{{10, false}}, {{2, true}}, {{60, false}}};
  const auto chosen = choose_preemptions(kCosts, sms, 1000, 9, only(Preemption::kDrain) | only(Preemption::kFlush));
  ASSERT_EQ(chosen.size(), 3u);
  EXPECT_EQ(chosen[0].sm, 1u);
  EXPECT_EQ(chosen[1].sm, 2u);
  EXPECT_EQ(chosen[2].sm, 0u);
  EXPECT_DOUBLE_EQ(chosen[2].cost.latency_ns, 90'000);
}

TEST(Preemption, AnSmWithoutBlocksIsFree) {
  const auto chosen = choose_preemptions(kCosts, std::vector<Sm>{{{1, true}}, {}}, 0, 1);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0].sm, 1u);
}

}  // namespace
}  // namespace bandsaw::slice
