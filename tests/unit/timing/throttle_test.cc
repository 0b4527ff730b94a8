#include "backend/device/soft/timing/throttle.h"

#include <gtest/gtest.h>

#include "backend/device/soft/timing/simulate.h"
#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

constexpr uint64_t kLine = 1 << 20;

uint32_t that_may_load(const LostLocality& lost, uint32_t slots) {
  uint32_t count = 0;
  for (uint32_t slot = 0; slot < slots; ++slot) count += lost.may_load(slot);
  return count;
}

LostLocality four_warps() {
  LostLocality lost(4);
  for (uint32_t slot = 0; slot < 4; ++slot) lost.begin_warp(slot, slot);
  return lost;
}

// Warp 2 brings a line, warp 3's takes its place, and warp 2 asks for it again.
void lose(LostLocality* lost) {
  lost->missed(2, kLine, 0);
  lost->missed(3, 2 * kLine, kLine);
  lost->missed(2, kLine, 0);
}

TEST(LostLocality, NobodyIsHeldBackUntilSomethingIsLost) {
  LostLocality lost = four_warps();
  lost.issued();
  lost.missed(2, kLine, 0);
  lost.missed(3, 2 * kLine, 3 * kLine);  // nobody's
  lost.missed(3, kLine, 0);              // another warp's line is no loss of this one
  lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 4u);
}

TEST(LostLocality, WhoHasLostLinesLoadsAndTheYoungestDoNot) {
  LostLocality lost = four_warps();
  for (int i = 0; i < 16; ++i) lost.issued();
  lose(&lost);
  lost.step();  // one loss of 16 instructions, eight times, of the budget of 400: 200 points
  EXPECT_TRUE(lost.may_load(2));
  EXPECT_EQ(that_may_load(lost, 4), 4u);  // 199, 299 and 399 points are within the budget
  lose(&lost);
  lost.step();  // two of 16: 400 points
  EXPECT_TRUE(lost.may_load(2));
  EXPECT_TRUE(lost.may_load(0));
  EXPECT_FALSE(lost.may_load(1));
  EXPECT_FALSE(lost.may_load(3));
}

TEST(LostLocality, WhatWasLostIsForgottenPointByPoint) {
  LostLocality lost = four_warps();
  for (int i = 0; i < 8; ++i) lost.issued();
  lose(&lost);  // 400 points
  lost.step();
  EXPECT_LT(that_may_load(lost, 4), 4u);
  for (int i = 0; i < 300; ++i) lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 4u);
}

TEST(LostLocality, AWarpThatEndsLeavesItsPartToOthers) {
  LostLocality lost = four_warps();
  for (int i = 0; i < 4; ++i) lost.issued();
  lose(&lost);
  lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 1u);
  lost.end_warp(2);
  lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 4u);
  lost.begin_warp(2, 9);  // another one, that has lost nothing
  lost.missed(2, kLine, 0);
  lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 4u);
}

TEST(LostLocality, OnlyTheNewestVictimsAreKnown) {
  LostLocality lost = four_warps();
  lost.issued();
  for (uint64_t i = 0; i < 9; ++i) lost.missed(2, i * 2 * kLineBytes + kLine, 0);  // of one set
  for (uint64_t i = 0; i < 9; ++i) lost.missed(3, i * 2 * kLineBytes + 2 * kLine, i * 2 * kLineBytes + kLine);
  lost.missed(2, kLine, 0);  // displaced first, so it is forgotten
  lost.step();
  EXPECT_EQ(that_may_load(lost, 4), 4u);
  lost.missed(2, 8 * 2 * kLineBytes + kLine, 0);
  lost.step();
  EXPECT_LT(that_may_load(lost, 4), 4u);
}

void spend(BlockLimit* limit, uint32_t idle, uint32_t memory) {
  for (uint32_t i = 0; i < 2048; ++i)
    limit->step(i < idle            ? BlockLimit::Cycle::kIdle
                : i < idle + memory ? BlockLimit::Cycle::kMemory
                                    : BlockLimit::Cycle::kBusy);
}

TEST(BlockLimit, BeginsWithHalfAndFollowsItsCycles) {
  BlockLimit limit(8);
  EXPECT_EQ(limit.limit(), 4u);
  spend(&limit, 0, 127);
  EXPECT_EQ(limit.limit(), 5u);
  spend(&limit, 0, 384);  // between the thresholds
  EXPECT_EQ(limit.limit(), 5u);
  spend(&limit, 16, 385);
  EXPECT_EQ(limit.limit(), 4u);
  spend(&limit, 17, 2000);  // nothing to do counts more
  EXPECT_EQ(limit.limit(), 5u);
}

TEST(BlockLimit, StaysBetweenOneAndAll) {
  BlockLimit limit(2);
  for (int i = 0; i < 5; ++i) spend(&limit, 0, 2048);
  EXPECT_EQ(limit.limit(), 1u);
  for (int i = 0; i < 5; ++i) spend(&limit, 0, 0);
  EXPECT_EQ(limit.limit(), 2u);
  EXPECT_EQ(BlockLimit(1).limit(), 1u);
}

// Each warp reads lines of its own again and again, more of all together than L1 has room for, and enough for half of
// them.
LaunchTrace thrashing(uint32_t warps) {
  LaunchTrace launch = launch_of({load({}, {2}), simple({2}, {3}), branch(0)}, warps);
  for (uint32_t warp = 0; warp < warps; ++warp) {
    std::vector<std::vector<uint32_t>> parts;
    for (int turn = 0; turn < 400; ++turn) {
      parts.push_back({stretch(0)});
      parts.push_back(lines({(uint64_t{warp} * 2 + turn % 2 + 1) * kLineBytes}));
    }
    add_warp(&launch, 0, warp, parts);
  }
  return launch;
}

TEST(Throttle, WarpsThatLoseTheirLinesAreKeptApart) {
  Machine machine = plain_machine();
  machine.dram_sector_sixteenths = 64;
  machine.l2 = {1024, 16, false};
  const LaunchTrace launch = thrashing(8);
  const Timing all = simulate(launch, machine, {.policy = "lrr"});
  const Timing some = simulate(launch, machine, {.policy = "ccws"});
  EXPECT_EQ(some.sm.instructions, all.sm.instructions);
  EXPECT_GT(static_cast<double>(some.accesses.l1_hits), 1.5 * static_cast<double>(all.accesses.l1_hits));
  EXPECT_LT(some.cycles, all.cycles);
}

TEST(Throttle, FewerBlocksRunWhereAllWaitForMemory) {
  Machine machine = plain_machine();
  machine.dram_sector_sixteenths = 256;
  LaunchTrace launch = launch_of({load({}, {2}), simple({2}, {3}), branch(0)}, 1, 8);
  for (uint64_t block = 0; block < 8; ++block) {
    std::vector<std::vector<uint32_t>> parts;
    for (uint64_t turn = 0; turn < 100; ++turn) {
      parts.push_back({stretch(0)});
      parts.push_back(lines({(block * 1000 + turn + 1) * kLineBytes}));
    }
    add_warp(&launch, block, 0, parts);
  }
  const Timing one = simulate(launch, machine, {.policy = "dyncta"});
  EXPECT_FALSE(one.cut);
  EXPECT_EQ(one.sm.instructions, 8u * 100 * 3);
  // The last blocks run by themselves where all eight would run at once.
  EXPECT_GT(one.cycles, simulate(launch, machine, {.policy = "gto"}).cycles);
}

}  // namespace
}  // namespace bandsaw::soft::timing
