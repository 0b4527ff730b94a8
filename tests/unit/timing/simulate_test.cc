#include "backend/device/soft/timing/simulate.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

// On the plain machine a line that is nowhere takes 124 cycles: a cycle to leave the SM, 10 through the network, one in
// L2, one on the bus, 100 of DRAM, one through the port, 10 back. The first instruction is fetched in cycle 0, its line
// comes in 124, it can issue in 125.
constexpr uint64_t kMiss = 124, kFirst = 125;

uint64_t cycles(const LaunchTrace& launch, const Machine& machine = plain_machine()) {
  return simulate(launch, machine, {}).cycles;
}

TEST(Simulate, OneInstructionWaitsForItsCode) {
  LaunchTrace launch = launch_of({simple({}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}});
  const Timing timing = simulate(launch, plain_machine(), {});
  EXPECT_EQ(timing.cycles, kFirst + 1);
  EXPECT_EQ(timing.sm.instructions, 1u);
  EXPECT_EQ(timing.sm.thread_instructions, 32u);
  EXPECT_EQ(timing.sm.stalls.fetch, kFirst);
  EXPECT_EQ(timing.memory.l2_reads, 1u);
  EXPECT_EQ(timing.memory.dram_sectors, 4u);
}

TEST(Simulate, WhatDependsWaitsForTheResult) {
  LaunchTrace apart = launch_of({simple({}, {1}), simple({2}, {3})});
  LaunchTrace chained = launch_of({simple({}, {1}), simple({1}, {3})});
  for (LaunchTrace* launch : {&apart, &chained}) add_warp(launch, 0, 0, {{stretch(0)}});
  EXPECT_EQ(cycles(apart), kFirst + 2);
  EXPECT_EQ(cycles(chained), kFirst + 4 + 1);
}

TEST(Simulate, ALoadComesFromDramThenFromL1) {
  LaunchTrace launch = launch_of({load({}, {2}), load({2}, {3}), simple({3}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({0})});
  const Timing timing = simulate(launch, plain_machine(), {});
  // The load/store unit takes it a cycle later; then a miss; the second one a cycle later, and a hit.
  EXPECT_EQ(timing.cycles, kFirst + 1 + kMiss + 1 + 5 + 1);
  EXPECT_EQ(timing.accesses.l1_reads, 2u);
  EXPECT_EQ(timing.accesses.l1_hits, 1u);
  EXPECT_EQ(timing.sm.stalls.dependency, kMiss + 5);
}

LaunchTrace two_loads() {
  LaunchTrace launch = launch_of({load({}, {2}), load({}, {3}), simple({2, 3}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({4096})});
  return launch;
}

TEST(Simulate, MissesOverlapAsFarAsThereAreMshrs) {
  Machine machine = plain_machine();
  EXPECT_EQ(cycles(two_loads(), machine), kFirst + 1 + kMiss + 1 + 1);  // one behind the other
  machine.l1d_misses = 1;
  const Timing timing = simulate(two_loads(), machine, {});
  EXPECT_EQ(timing.cycles, kFirst + 1 + 2 * kMiss + 1);
  EXPECT_EQ(timing.accesses.refused, kMiss - 1);  // from the cycle behind the first until that one has come
}

TEST(Simulate, AccessesThatAreRefusedLetOthersPassInAQueue) {
  Machine machine = plain_machine();
  machine.l1d_misses = 1;
  // The third finds the first one's line, and is behind the second.
  LaunchTrace launch = launch_of({load({}, {2}), load({}, {3}), load({}, {4}), simple({4}, {5})});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({4096}), lines({0})});
  const Timing plain = simulate(launch, machine, {}), queued = simulate(launch, machine, {.requeue_slots = 4});
  EXPECT_EQ(queued.accesses.requeued, 1u);
  EXPECT_EQ(queued.accesses.refused, 1u);
  EXPECT_EQ(plain.accesses.refused, kMiss - 1);
  EXPECT_LT(queued.sm.stalls.dependency, plain.sm.stalls.dependency);
}

TEST(Simulate, BanksTurnAsOftenAsLanesConflict) {
  LaunchTrace launch = launch_of({load({}, {2}), simple({2}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}, {banks(4)}});
  EXPECT_EQ(cycles(launch), kFirst + 4 + 10 + 1);
}

TEST(Simulate, AnAccessOfNoLaneTakesNothing) {
  LaunchTrace launch = launch_of({load({}, {2}), simple({2}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({})});
  EXPECT_EQ(cycles(launch), kFirst + 1 + 1);
}

TEST(Simulate, ABranchHasItsTargetFetched) {
  LaunchTrace launch = launch_of({branch(0), simple({}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}, {stretch(0)}, {stretch(1)}});
  // What is behind the branch is thrown away when it is taken, which is known four cycles later; then one to fetch.
  EXPECT_EQ(cycles(launch), kFirst + 4 + 1 + 1 + 1);
}

TEST(Simulate, WarpsMeetAtABarrier) {
  LaunchTrace launch = launch_of({simple({}, {}), barrier(), simple({}, {})}, 2);
  for (uint32_t warp = 0; warp < 2; ++warp) add_warp(&launch, 0, warp, {{stretch(0)}});
  // Greedy: the first warp's two, the second's two, then its last one, then the first's.
  EXPECT_EQ(cycles(launch), kFirst + 6);
}

TEST(Simulate, ABarrierDoesNotWaitForWarpsThatHaveEnded) {
  LaunchTrace launch = launch_of({simple({}, {}), barrier(), simple({}, {}), simple({}, {})}, 3);
  launch.code.instructions[2].ends_stretch = true;
  add_warp(&launch, 0, 0, {{stretch(0)}});
  add_warp(&launch, 0, 1, {{stretch(3)}});  // the third is not in the trace at all
  const Timing timing = simulate(launch, plain_machine(), {}, 1000);
  EXPECT_FALSE(timing.cut);
  EXPECT_EQ(timing.sm.instructions, 4u);
}

TEST(Simulate, BlocksWaitForRoomAndFindTheCodeThere) {
  LaunchTrace launch = launch_of({simple({}, {})}, 1, 2);
  add_warp(&launch, 0, 0, {{stretch(0)}});
  add_warp(&launch, 1, 0, {{stretch(0)}});
  Machine machine = plain_machine();
  machine.blocks = 1;
  EXPECT_EQ(cycles(launch, machine), kFirst + 1 + 2);
}

TEST(Simulate, ALaunchIsCountedByItsPart) {
  LaunchTrace launch = launch_of({simple({}, {})}, 1, 10);
  add_warp(&launch, 0, 0, {{stretch(0)}});
  add_warp(&launch, 1, 0, {{stretch(0)}});
  const Timing timing = simulate(launch, plain_machine(), {});
  EXPECT_EQ(timing.blocks, 2u);
  EXPECT_DOUBLE_EQ(timing.launch_cycles, 5.0 * static_cast<double>(timing.cycles));
  Machine part = plain_machine();
  part.part = {1, 10};  // one block for each SM
  EXPECT_EQ(simulate(launch, part, {}).blocks, 1u);
}

TEST(Simulate, APartHasBlocksThatGoToItsSmsInTurn) {
  const Part part{2, 5};
  std::vector<uint64_t> has;
  for (uint64_t block = 0; block < 13; ++block) {
    EXPECT_EQ(part.blocks_of(block), has.size());
    if (part.has(block)) has.push_back(block);
  }
  EXPECT_EQ(has, (std::vector<uint64_t>{0, 1, 5, 6, 10, 11}));
  EXPECT_EQ((Part{4, 132}).blocks_of(3), 3u);  // a small grid has a block on each SM
  EXPECT_EQ((Part{}).blocks_of(7), 7u);
}

TEST(Simulate, ABoundOfCyclesCutsIt) {
  LaunchTrace launch = launch_of({simple({}, {})});
  add_warp(&launch, 0, 0, {{stretch(0)}});
  const Timing timing = simulate(launch, plain_machine(), {}, 50);
  EXPECT_TRUE(timing.cut);
  EXPECT_EQ(timing.cycles, 50u);
}

TEST(Simulate, NothingRecordedIsNothing) {
  const Timing timing = simulate(launch_of({simple({}, {})}), plain_machine(), {});
  EXPECT_EQ(timing.cycles, 0u);
  EXPECT_EQ(timing.blocks, 0u);
}

TEST(Simulate, ABlockThatFitsNowhereIsSaidToBe) {
  LaunchTrace launch = launch_of({simple({}, {})});
  launch.shared_bytes = 100 << 10;
  add_warp(&launch, 0, 0, {{stretch(0)}});
  EXPECT_TRUE(simulate(launch, gtx480(), {}).oversized);
  EXPECT_FALSE(simulate(launch, h200(), {}).oversized);
}

// Loops with loads, stores and barriers, on addresses that follow no rule.
LaunchTrace random_launch(uint32_t seed) {
  std::mt19937 random(seed);
  LaunchTrace launch =
      launch_of({load({1}, {2}), simple({2}, {3}), simple({3}, {4}), store({4}), barrier(), branch(0)}, 4, 24);
  for (uint64_t block = 0; block < 24; ++block) {
    for (uint32_t warp = 0; warp < 4; ++warp) {
      std::vector<std::vector<uint32_t>> parts;
      for (int turn = 0; turn < 6; ++turn) {
        parts.push_back({stretch(0, 1 + random() % 32)});
        std::vector<uint64_t> some;
        for (uint32_t n = random() % 5; n != 0; --n) some.push_back(uint64_t{random() % 4096} * kLineBytes);
        parts.push_back(lines(some));
        parts.push_back(lines({uint64_t{random() % 4096} * kLineBytes}));
      }
      add_warp(&launch, block, warp, parts);
    }
  }
  return launch;
}

TEST(Simulate, EveryPolicyDoesAllOfItAndEachCycleIsAccountedFor) {
  const LaunchTrace launch = random_launch(3);
  for (const std::string& gpu : machine_names()) {
    Machine machine;
    ASSERT_TRUE(find_machine(gpu, &machine));
    machine.part.total_sms = machine.part.sms;
    machine.unified_bytes = 0;  // so little that L1 refuses some accesses
    machine.l1d = {16 << 10, 4, machine.l1d.sectored};
    machine.l1d_misses = 32;
    for (const std::string& policy : warp_policy_names()) {
      for (const uint32_t extras : {0u, 16u}) {
        const Scheduling scheduling{policy, extras, extras};
        const Timing one = simulate(launch, machine, scheduling), again = simulate(launch, machine, scheduling);
        EXPECT_EQ(one.cycles, again.cycles);
        EXPECT_EQ(one.sm.instructions, 24u * 4 * 6 * 6) << policy;
        EXPECT_FALSE(one.cut);
        const Stalls& s = one.sm.stalls;
        EXPECT_EQ(one.sm.instructions + s.conflict + s.dependency + s.fetch + s.barrier + s.other + one.sm.empty,
                  one.scheduler_cycles);
        EXPECT_LE(one.accesses.l1_hits, one.accesses.l1_reads);
        EXPECT_EQ(extras == 0, one.accesses.requeued == 0);
      }
    }
  }
}

}  // namespace
}  // namespace bandsaw::soft::timing
