#include "backend/device/soft/timing/trace.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

LaunchTrace example() {
  LaunchTrace launch = launch_of({load({1}, {2}), simple({2}, {3}), store({3})}, 2, 3);
  for (uint64_t block = 0; block < 2; ++block)
    for (uint32_t warp = 0; warp < 2; ++warp)
      add_warp(&launch, block, warp, {{stretch(0)}, lines({128 * (block + 1)}), lines({1 << 20, 2ull << 40})});
  return launch;
}

std::string encoded(const LaunchTrace& launch) {
  std::string bytes = encode_head(launch);
  for (const WarpTrace& warp : launch.warps) bytes += encode_warp(warp);
  return bytes;
}

TEST(Trace, IsReadAsItWasWritten) {
  const LaunchTrace launch = example();
  std::string error;
  const auto read = decode(encoded(launch), &error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->kernel, "k");
  EXPECT_EQ(read->blocks(), 3u);
  EXPECT_EQ(read->block_warps(), 2u);
  EXPECT_FALSE(read->cut);
  ASSERT_EQ(read->code.instructions.size(), 3u);
  EXPECT_EQ(read->code.instructions[0].writes, std::vector<uint32_t>{2});
  EXPECT_TRUE(read->code.instructions[0].global_load);
  EXPECT_TRUE(read->code.instructions[2].ends_stretch);
  ASSERT_EQ(read->warps.size(), 4u);
  EXPECT_EQ(read->warps[3].words, launch.warps[3].words);
}

TEST(Trace, WarpsAreInOrderHoweverTheyEnded) {
  LaunchTrace launch = example();
  std::swap(launch.warps[0], launch.warps[3]);
  std::string error;
  const auto read = decode(encoded(launch), &error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->warps[0].block, 0u);
  EXPECT_EQ(read->warps[3].block, 1u);
}

// Its writer was killed.
TEST(Trace, ALastWarpThatIsNotAllThereIsLeftOut) {
  const std::string whole = encoded(example());
  std::string error;
  const auto read = decode(std::span(whole).first(whole.size() - 3), &error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->warps.size(), 3u);
  EXPECT_TRUE(read->cut);
}

TEST(Trace, AWarpThatWasCutKeepsItsWholeStretches) {
  LaunchTrace launch = example();
  WarpTrace& warp = launch.warps[1];
  warp.words.insert(warp.words.end(), {stretch(0)});  // without its accesses
  warp.cut = true;
  std::string error;
  const auto read = decode(encoded(launch), &error);
  ASSERT_TRUE(read) << error;
  EXPECT_TRUE(read->cut);
  EXPECT_EQ(read->warps[1].words, example().warps[1].words);
  launch.warps[1].cut = false;
  EXPECT_FALSE(decode(encoded(launch), &error));
}

TEST(Trace, WhatCannotBeIsRefused) {
  std::string error;
  const auto refused = [&](auto change) {
    LaunchTrace launch = example();
    change(launch);
    return !decode(encoded(launch), &error);
  };
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.grid[1] = 0; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.grid[2] = 65536; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.block[0] = 1025; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.code.registers = 2; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.code.registers = kMostRegisters + 1; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.code.instructions.back().ends_stretch = false; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.code.instructions[0].target = 3; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.code.instructions[0].target = -2; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].block = 3; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.part = {1, 2}; }));  // block 1 falls to another SM
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.part = {0, 1}; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.part = {3, 2}; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].warp = 2; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].warp = 1; }));  // twice
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words[0] = stretch(3); }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words[0] = stretch(0, 33); }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words[0] = banks(1); }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words[1] = kLines | 33u << 24; }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words[1] = banks(kMostTurns + 1); }));
  EXPECT_TRUE(refused([](LaunchTrace& l) { l.warps[0].words.pop_back(); }));
  EXPECT_FALSE(decode(std::string("BSWTRC02"), &error));
  EXPECT_FALSE(decode(std::string(), &error));
}

// Whatever a runner wrote: no bytes may do harm.
TEST(Trace, AnyBytesAreReadOrRefused) {
  const std::string good = encoded(example());
  std::mt19937 random(7);
  std::string error;
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good.substr(0, good.size() - random() % good.size() / 4);
    for (uint32_t n = 1 + random() % 4; n != 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (const auto launch = decode(bytes, &error)) {
      ++read;
      for (const WarpTrace& warp : launch->warps) ASSERT_LT(warp.block, launch->blocks());
    }
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace bandsaw::soft::timing
