// Where blocks of managed memory are, and what each use of them asks for, in virtual time.
#include "memory/managed/residency.h"

#include <gtest/gtest.h>

#include <random>

namespace bandsaw::managed {
namespace {

constexpr uint64_t kBlock = 4096, kBlocks = 10, kBytes = kBlocks * kBlock - 100;
constexpr uint64_t kMs = 1'000'000;
using What = ToHost::What;
using Piece = managed::Run;  // a test has a member Run

Touch touch(uint64_t block, bool write, uint64_t now_ns = 0, uint64_t thread = 1) {
  return {block * kBlock + 5, write, thread, now_ns};
}

void to_device(Residency* residency, Piece run, uint64_t thread = 1) {
  for (const Piece& one : residency->to_device(run).take) residency->went_to_device(one, thread);
}

ToHost fetch(Residency* residency, const Touch& seen) {
  const ToHost wanted = residency->to_host(seen);
  if (wanted.what != What::kNothing) residency->came_to_host(wanted.run, wanted.writable);
  residency->touched(wanted, seen);
  return wanted;
}

TEST(Residency, ANewAllocationIsTheHostsAndGoesInOnePiece) {
  Residency residency(kBytes, kBlock);
  EXPECT_FALSE(residency.any_on_device());
  const ToDevice plan = residency.to_device({0, kBytes});
  EXPECT_EQ(plan.close, (std::vector<Piece>{{0, kBytes}}));
  EXPECT_EQ(plan.copy, plan.close);
  residency.went_to_device({0, kBytes});
  EXPECT_TRUE(residency.all_on_device());
  EXPECT_TRUE(residency.to_device({0, kBytes}).empty());
}

TEST(Residency, OnlyBlocksThatAreAskedForGo) {
  Residency residency(kBytes, kBlock);
  EXPECT_EQ(residency.to_device({kBlock + 1, kBlock}).copy, (std::vector<Piece>{{kBlock, 2 * kBlock}}));
  to_device(&residency, {kBlock + 1, kBlock});
  EXPECT_EQ(residency.to_device({0, kBytes}).copy,
            (std::vector<Piece>{{0, kBlock}, {3 * kBlock, kBytes - 3 * kBlock}}));
  EXPECT_TRUE(residency.to_device({kBytes, 1}).empty());
  EXPECT_TRUE(residency.to_device({0, 0}).empty());
}

TEST(Residency, WhatWasOnlyReadIsTakenWithoutACopy) {
  Residency residency(kBytes, kBlock);
  to_device(&residency, {0, kBytes});
  EXPECT_EQ(fetch(&residency, touch(2, false)).what, What::kFetch);
  EXPECT_EQ(residency.holder(2 * kBlock), Holder::kBoth);
  EXPECT_EQ(residency.to_host(touch(2, false)).what, What::kNothing);
  ToDevice plan = residency.to_device({0, kBytes});
  EXPECT_EQ(plan.take, (std::vector<Piece>{{2 * kBlock, kBlock}}));
  EXPECT_EQ(plan.close, plan.take);
  EXPECT_TRUE(plan.copy.empty());
  EXPECT_EQ(fetch(&residency, touch(2, true)).what, What::kUnlock);
  EXPECT_EQ(residency.to_device({0, kBytes}).copy, plan.close);
}

TEST(Residency, WhoWritesOnMayWriteMoreAtOnce) {
  Residency residency(kBytes, kBlock);
  to_device(&residency, {0, kBytes});
  residency.came_to_host({0, 6 * kBlock}, false);
  EXPECT_EQ(fetch(&residency, touch(4, true)).run, (Piece{4 * kBlock, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(0, true)).run, (Piece{0, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(1, true)).run, (Piece{kBlock, 2 * kBlock}));
  EXPECT_EQ(fetch(&residency, touch(3, true)).run, (Piece{3 * kBlock, kBlock})) << "then it is writable already";
  EXPECT_EQ(residency.holder(5 * kBlock), Holder::kBoth) << "the device need not have it again";
}

TEST(Residency, WhoReadsOnGetsMoreAtOnceUpToWhatTheHostHas) {
  Residency residency(kBytes, kBlock);
  to_device(&residency, {0, kBytes});
  EXPECT_EQ(fetch(&residency, touch(6, true)).run, (Piece{6 * kBlock, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(0, false)).run, (Piece{0, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(1, false)).run, (Piece{kBlock, 2 * kBlock}));
  EXPECT_EQ(fetch(&residency, touch(3, false)).run, (Piece{3 * kBlock, 3 * kBlock}));
  EXPECT_EQ(residency.on_device({0, kBytes}), (std::vector<Piece>{{7 * kBlock, kBytes - 7 * kBlock}}));
}

TEST(Residency, WhereMostIsTheHostsTheRestComesAlong) {
  Residency residency(8 * kBlock, kBlock);
  to_device(&residency, {0, 8 * kBlock});
  EXPECT_EQ(fetch(&residency, touch(5, true)).run, (Piece{5 * kBlock, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(3, true)).run, (Piece{3 * kBlock, kBlock})) << "far from it";
  EXPECT_EQ(fetch(&residency, touch(2, true)).run, (Piece{2 * kBlock, kBlock}));
  EXPECT_EQ(fetch(&residency, touch(1, true)).run, (Piece{0, 2 * kBlock})) << "3 of 4, so all 4";
  EXPECT_EQ(fetch(&residency, touch(7, true)).run, (Piece{6 * kBlock, 2 * kBlock}));
  EXPECT_EQ(residency.on_device({0, 8 * kBlock}), (std::vector<Piece>{{4 * kBlock, kBlock}}));
  EXPECT_EQ(residency.device_bytes(), kBlock);
}

TEST(Residency, ALoopOfLaunchesAndTouchesOfOneThreadIsNoThrashing) {
  Residency residency(kBytes, kBlock);
  for (uint64_t round = 1; round < 20; ++round) {
    for (const Piece& one : residency.to_device({0, kBytes}).take) residency.went_to_device(one, 7);
    EXPECT_EQ(fetch(&residency, touch(4, true, round * 1000, 7)).run, (Piece{4 * kBlock, kBlock}));
  }
  EXPECT_EQ(residency.quick_returns(), 0u);
}

TEST(Residency, WhatAnotherThreadsLaunchTookComesBackInOne) {
  Residency residency(40 * kBlock, kBlock);
  to_device(&residency, {0, 40 * kBlock});
  EXPECT_EQ(fetch(&residency, touch(9, true, kMs)).run, (Piece{9 * kBlock, kBlock}));
  to_device(&residency, {0, 40 * kBlock}, 2);
  EXPECT_EQ(fetch(&residency, touch(12, true, 50 * kMs)).run, (Piece{0, 32 * kBlock}));
  EXPECT_EQ(fetch(&residency, touch(35, true, 51 * kMs)).run, (Piece{35 * kBlock, kBlock}));
}

TEST(Residency, WhatIsDiscardedIsNotCopied) {
  Residency residency(kBytes, kBlock);
  to_device(&residency, {0, kBytes});
  residency.discarded({2 * kBlock, 3 * kBlock});
  EXPECT_FALSE(residency.all_on_device());
  EXPECT_TRUE(residency.on_device({2 * kBlock, 3 * kBlock}).empty());
  const ToHost opened = fetch(&residency, touch(3, false));
  EXPECT_EQ(opened.what, What::kOpen);
  EXPECT_EQ(opened.run, (Piece{3 * kBlock, 2 * kBlock}));
  EXPECT_EQ(residency.holder(3 * kBlock), Holder::kHost);
  const ToDevice plan = residency.to_device({0, kBytes});
  EXPECT_EQ(plan.take, (std::vector<Piece>{{2 * kBlock, 3 * kBlock}}));
  EXPECT_EQ(plan.close, (std::vector<Piece>{opened.run}));
  EXPECT_EQ(plan.copy, plan.close);
}

TEST(Residency, OnlyWholeBlocksCanBeDiscarded) {
  const Residency residency(kBytes, kBlock);
  EXPECT_EQ(residency.blocks_within({1, 3 * kBlock}), (Piece{kBlock, 2 * kBlock}));
  EXPECT_EQ(residency.blocks_within({9 * kBlock, kBytes - 9 * kBlock}), (Piece{9 * kBlock, kBytes - 9 * kBlock}));
  EXPECT_EQ(residency.blocks_within({1, kBlock}).bytes, 0u);
}

TEST(Residency, MemoryUsedAgainKeepsItsOpenPages) {
  constexpr uint64_t kKib = 1024;
  Residency chunk(1024 * kKib, kBlock), first(chunk, {64 * kKib, 256 * kKib});
  EXPECT_FALSE(first.any_on_device());
  to_device(&first, {0, 128 * kKib});
  chunk.take_over(64 * kKib, first);
  const Residency second(chunk, {128 * kKib, 256 * kKib});
  EXPECT_EQ(second.holder(64 * kKib - 1), Holder::kNobody);
  EXPECT_EQ(second.holder(64 * kKib), Holder::kHost);
  EXPECT_FALSE(second.any_on_device());
  const ToDevice plan = second.to_device({0, 256 * kKib});
  EXPECT_EQ(plan.take, (std::vector<Piece>{{0, 256 * kKib}}));
  EXPECT_EQ(plan.copy, (std::vector<Piece>{{64 * kKib, 192 * kKib}}));
}

TEST(Residency, AThrashingBlockIsLeftToItsThreadForAWhile) {
  Residency residency(kBytes, kBlock);
  uint64_t now = kMs;
  for (int round = 0; round < 3; ++round, now += 100'000) {
    to_device(&residency, {0, kBytes}, 2);
    fetch(&residency, touch(0, true, now));
  }
  EXPECT_EQ(residency.quick_returns(), 2u);
  EXPECT_EQ(residency.keep_until_ns(1), 0u) << "its own launch need not wait";
  const uint64_t first = residency.keep_until_ns(2) - (now - 100'000);
  EXPECT_GT(first, 0u);
  to_device(&residency, {0, kBytes}, 2);
  fetch(&residency, touch(0, true, now));
  EXPECT_EQ(residency.keep_until_ns(2) - now, 2 * first);
  for (int round = 0; round < 40; ++round) {
    now += 100'000;
    to_device(&residency, {0, kBytes}, 2);
    fetch(&residency, touch(0, true, now));
  }
  EXPECT_LE(residency.keep_until_ns(2) - now, kMs);
  to_device(&residency, {0, kBytes}, 2);
  fetch(&residency, touch(0, true, now + 100 * kMs));
  EXPECT_EQ(residency.keep_until_ns(2), 0u) << "a quiet time ends it";
}

TEST(Residency, LongRunsAreCutAndPartsFound) {
  const std::vector<Piece> runs{{0, 25}, {40, 10}};
  EXPECT_EQ(pieces_of(runs, 10), (std::vector<Piece>{{0, 10}, {10, 10}, {20, 5}, {40, 10}}));
  EXPECT_EQ(parts_in(runs, {20, 25}), (std::vector<Piece>{{20, 5}, {40, 5}}));
  EXPECT_TRUE(parts_in(runs, {25, 15}).empty());
}

// Two sides with bytes of their own, and a table that says what to copy: a reader always finds what was written last.
TEST(Residency, ManyUsesInAnyOrderFindTheNewestBytes) {
  std::mt19937 random(3);
  Residency residency(kBytes, kBlock);
  std::vector<int> host(kBlocks), device(kBlocks), newest(kBlocks);
  const auto move = [](const std::vector<Piece>& runs, const std::vector<int>& from, std::vector<int>* to) {
    for (const Piece& run : runs) {
      for (uint64_t at = run.offset; at < run.end(); at += kBlock) (*to)[at / kBlock] = from[at / kBlock];
    }
  };
  for (int round = 1; round < 20'000; ++round) {
    const uint64_t block = random() % kBlocks;
    if (random() % 3 == 0) {
      const Piece run{block * kBlock, random() % 2 ? kBlock : kBytes};
      const ToDevice plan = residency.to_device(run);
      move(plan.copy, host, &device);
      for (const Piece& one : plan.take) residency.went_to_device(one);
      ASSERT_EQ(device[block], newest[block]);
      device[block] = newest[block] = round;
      continue;
    }
    const bool write = random() % 2;
    const Touch seen = touch(block, write, static_cast<uint64_t>(round) * 1000, random() % 3);
    const ToHost wanted = residency.to_host(seen);
    if (wanted.what == What::kFetch) move(std::vector<Piece>{wanted.run}, device, &host);
    if (wanted.what != What::kNothing) residency.came_to_host(wanted.run, wanted.writable);
    residency.touched(wanted, seen);
    ASSERT_EQ(host[block], newest[block]);
    if (!write) continue;
    ASSERT_EQ(residency.holder(block * kBlock), Holder::kHost);
    host[block] = newest[block] = round;
  }
}

TEST(Residency, WorkThatOnlyReadsLeavesACopyOnBothSides) {
  Residency residency(kBytes, kBlock);
  to_device(&residency, {0, kBlock});
  const ToDevice plan = residency.to_device({0, 3 * kBlock}, true);
  EXPECT_EQ(plan.take, (std::vector<Piece>{{kBlock, 2 * kBlock}}));
  EXPECT_EQ(plan.copy, plan.take);
  residency.shared_with_device(plan);
  EXPECT_EQ(residency.holder(0), Holder::kDevice);
  EXPECT_EQ(residency.holder(kBlock), Holder::kBoth);
  EXPECT_TRUE(residency.to_device({0, 3 * kBlock}, true).empty());
  EXPECT_EQ(residency.to_host(touch(1, false)).what, What::kNothing);
  EXPECT_EQ(fetch(&residency, touch(1, true)).what, What::kUnlock);  // until a write
  EXPECT_EQ(residency.to_device({0, 3 * kBlock}, true).copy, (std::vector<Piece>{{kBlock, kBlock}}));
}

TEST(Residency, WhatTheDeviceLosesIsTheHostsOrNobodys) {
  Residency residency(kBytes, kBlock);
  EXPECT_TRUE(residency.all_on_host());
  to_device(&residency, {0, 3 * kBlock});
  residency.came_to_host({kBlock, kBlock}, false);
  EXPECT_FALSE(residency.all_on_host());
  residency.device_gone({0, kBytes});
  EXPECT_EQ(residency.holder(0), Holder::kNobody);
  EXPECT_EQ(residency.holder(kBlock), Holder::kHost);
  EXPECT_TRUE(residency.all_on_host());
  EXPECT_FALSE(residency.any_on_device());
}

TEST(Residency, AdviceDecidesWhatATouchBringsAlong) {
  Residency residency(64 * kBlock, kBlock);
  to_device(&residency, {0, 64 * kBlock});
  Touch seen = touch(3, false);
  seen.bias = Bias::kHost;
  EXPECT_EQ(residency.to_host(seen).run, (Piece{3 * kBlock, 61 * kBlock}));
  fetch(&residency, touch(7, false));
  seen = touch(8, false);
  seen.bias = Bias::kDevice;  // although the program goes on through it
  EXPECT_EQ(residency.to_host(seen).run, (Piece{8 * kBlock, kBlock}));
}

}  // namespace
}  // namespace bandsaw::managed
