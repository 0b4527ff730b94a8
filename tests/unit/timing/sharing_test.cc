#include "backend/device/soft/timing/sharing.h"

#include <gtest/gtest.h>

#include "backend/device/soft/timing/simulate.h"
#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

constexpr uint64_t kMiB = 1 << 20;

// Each block reads `own` lines that no other reads and `common` ones that all do, and those of `next_too` that its
// neighbour reads as well.
LaunchTrace reading(uint64_t grid, uint64_t recorded, uint64_t own, uint64_t common, uint64_t next_too = 0) {
  LaunchTrace launch = launch_of({load({}, {2}), simple({2}, {3}), branch(0)}, 1, static_cast<uint32_t>(grid));
  for (uint64_t block = 0; block < recorded; ++block) {
    std::vector<std::vector<uint32_t>> parts;
    const auto touch = [&](uint64_t line) {
      parts.push_back({stretch(0)});
      parts.push_back(lines({line * kLineBytes}));
    };
    for (uint64_t i = 0; i < common; ++i) touch(kMiB + i);
    for (uint64_t i = 0; i < own + next_too; ++i) touch(2 * kMiB + block * own + i);
    add_warp(&launch, block, 0, parts);
  }
  return launch;
}

// 4 SMs of 40 are simulated.
Machine tenth() {
  Machine machine = plain_machine();
  machine.part.sms = 4;
  machine.part.total_sms = 40;
  return machine;
}

TEST(Sharing, BlocksWithLinesOfTheirOwnShareNothing) {
  EXPECT_DOUBLE_EQ(sharing_of(reading(400, 128, 10, 0), 40, tenth()), 1);
}

TEST(Sharing, LinesThatAllReadAreAllParts) { EXPECT_DOUBLE_EQ(sharing_of(reading(400, 128, 0, 100), 40, tenth()), 10); }

TEST(Sharing, BothTogetherAreInBetween) {
  // Of the whole grid 100 + 400 lines; ten parts of 100 + 40.
  EXPECT_NEAR(sharing_of(reading(400, 128, 1, 100), 40, tenth()), 1400.0 / 500, 0.01);
}

TEST(Sharing, NeighboursShareLittle) { EXPECT_NEAR(sharing_of(reading(400, 128, 10, 0, 1), 40, tenth()), 1, 0.01); }

TEST(Sharing, ASmallGridIsAllThatThereIs) {
  EXPECT_DOUBLE_EQ(sharing_of(reading(40, 40, 0, 100), 4, tenth()), 10);
  EXPECT_DOUBLE_EQ(sharing_of(reading(40, 1, 0, 100), 1, tenth()), 1);  // one block says nothing
  EXPECT_DOUBLE_EQ(sharing_of(reading(40, 0, 0, 100), 0, tenth()), 1);
}

TEST(Sharing, WhatOthersBringComesFromL2) {
  const LaunchTrace launch = reading(400, 128, 0, 200);
  Machine all = tenth();
  all.part.total_sms = all.part.sms;  // no others
  const Timing part = simulate(launch, tenth(), {}), whole = simulate(launch, all, {});
  EXPECT_GT(whole.memory.dram_lines, 200u);  // and the code
  EXPECT_LT(part.memory.dram_lines, 60u);
  EXPECT_GT(part.memory.dram_lines, 5u);
}

TEST(Sharing, WhatAllReadTakesItsRoomOnce) {
  // Six times as much as the part's L2 has room for, less than that of all ten.
  Machine machine = tenth();
  machine.l2 = {16 << 10, 16, false};
  machine.l1d = {128, 1, false};
  const LaunchTrace launch = reading(400, 128, 0, 768);
  const Timing timing = simulate(launch, machine, {});
  EXPECT_LT(static_cast<double>(timing.memory.dram_lines), 0.25 * 768);
}

}  // namespace
}  // namespace bandsaw::soft::timing
