#include "memory/swap/chunks.h"

#include <gtest/gtest.h>

namespace bandsaw::swap {
namespace {

using Addresses = std::vector<uint64_t>;
constexpr uint64_t kSize = 100;

class ChunksTest : public testing::Test {
 protected:
  void add(uint64_t address, bool on_device, uint64_t used_ns = 0) {
    chunks_.add(address, {.allocation = address, .bytes = kSize, .on_device = on_device, .used_ns = used_ns});
  }
  // As a device would, at the time `now_`.
  Chunks::Plan carry_out(const Addresses& wanted, uint64_t room) {
    const Chunks::Plan plan = chunks_.bring(wanted, room);
    for (const uint64_t address : plan.out) chunks_.moved(address, false, now_);
    for (const uint64_t address : plan.in) chunks_.moved(address, true, now_);
    chunks_.used(wanted, now_);
    return plan;
  }
  Chunks chunks_;
  uint64_t now_ = 1;
};

TEST_F(ChunksTest, FindsWhatAnAddressMayReach) {
  chunks_.add(1000, {.allocation = 1000, .bytes = kSize});
  chunks_.add(1100, {.allocation = 1000, .bytes = 50});
  chunks_.add(1200, {.allocation = 1200, .bytes = kSize});
  Addresses found;
  chunks_.reach_allocation(1120, &found);
  EXPECT_EQ(found, (Addresses{1000, 1100}));
  found.clear();
  chunks_.reach_allocation(1160, &found);
  chunks_.reach_allocation(999, &found);
  chunks_.reach_allocation(1300, &found);
  EXPECT_TRUE(found.empty());
  chunks_.reach_range(1099, 2, &found);
  EXPECT_EQ(found, (Addresses{1000, 1100}));
  found.clear();
  chunks_.reach_range(1150, 50, &found);
  EXPECT_TRUE(found.empty());
  chunks_.reach_range(0, ~uint64_t{0}, &found);
  EXPECT_EQ(found, (Addresses{1000, 1100, 1200}));
}

TEST_F(ChunksTest, BringsWhatIsNeededAndSendsTheLeastRecentlyUsed) {
  add(1000, true, 30), add(2000, true, 10), add(3000, true, 20), add(4000, false);
  const Chunks::Plan plan = chunks_.bring({4000}, 0);
  EXPECT_EQ(plan.in, (Addresses{4000}));
  EXPECT_EQ(plan.out, (Addresses{2000}));
  EXPECT_TRUE(chunks_.bring({4000}, kSize).out.empty());
  EXPECT_TRUE(chunks_.bring({1000, 2000}, 0).empty());
}

TEST_F(ChunksTest, WhatTheSameWorkNeedsStays) {
  add(1000, true), add(2000, true), add(3000, false), add(4000, false);
  const Chunks::Plan plan = chunks_.bring({1000, 3000, 4000}, 0);
  EXPECT_EQ(plan.out, (Addresses{2000}));
  EXPECT_EQ(plan.in, (Addresses{3000}));  // 4000 is reached where it is
}

TEST_F(ChunksTest, PinnedChunksDoNotMove) {
  add(1000, true), add(2000, false), add(3000, false);
  chunks_.pin(1000);
  EXPECT_TRUE(chunks_.bring({2000}, 0).empty());
  chunks_.pin(2000);
  EXPECT_EQ(chunks_.bring({2000, 3000}, kSize).in, (Addresses{3000}));
}

TEST_F(ChunksTest, AChunkThatIsGivenTwiceComesOnce) {
  add(1000, false);
  EXPECT_EQ(chunks_.bring({1000, 1000}, 5 * kSize).in, (Addresses{1000}));
}

TEST_F(ChunksTest, MakesRoomOnlyIfItCan) {
  add(1000, true, 2), add(2000, true, 1), add(3000, false);
  EXPECT_TRUE(chunks_.make_room(50, 50).empty());
  EXPECT_EQ(chunks_.make_room(kSize, 50).out, (Addresses{2000}));
  EXPECT_EQ(chunks_.make_room(2 * kSize, 0).out, (Addresses{2000, 1000}));
  EXPECT_TRUE(chunks_.make_room(2 * kSize + 1, 0).empty());
}

// Six chunks in turn, room for three: least recently used alone would move each one each time.
TEST_F(ChunksTest, GoingRoundMoreThanThereIsRoomForKeepsSome) {
  for (uint64_t i = 0; i < 6; ++i) add(1000 + i * kSize, i < 3);
  size_t moves = 0, turns = 0;
  for (; turns < 600; ++turns) {
    now_ += 1'000'000;
    moves += carry_out({1000 + turns % 6 * kSize}, 0).in.size();
  }
  EXPECT_LT(moves, turns * 7 / 10);
}

TEST_F(ChunksTest, WhatIsNotUsedAnyMoreGoesInTheEnd) {
  add(1000, true), add(2000, false), add(3000, false);
  for (int i = 0; i < 50; ++i) {
    now_ += 1'000'000;
    carry_out({i % 2 ? 2000u : 3000u}, 0);
  }
  EXPECT_FALSE(chunks_.find(1000)->on_device);
}

TEST_F(ChunksTest, WhatWasInUseComesBackWhereThereIsRoom) {
  add(1000, true, 5), add(2000, false, 40), add(3000, false, 20), add(4000, false, 30), add(5000, false),
      add(6000, false, 10);
  const auto back = [this](uint64_t room, size_t most) {
    Chunks::Plan plan = chunks_.bring({2000}, room);
    chunks_.bring_back(room, most, &plan);
    return plan.in;
  };
  EXPECT_EQ(back(4 * kSize, 8), (Addresses{2000, 6000, 3000, 4000})) << "least recently used first; 5000 never was";
  EXPECT_EQ(back(4 * kSize, 2), (Addresses{2000, 6000}));
  EXPECT_EQ(back(3 * kSize - 1, 8), (Addresses{2000, 6000}));
  EXPECT_EQ(back(9 * kSize, 8).size(), 4u);
  EXPECT_EQ(back(0, 8), (Addresses{2000})) << "nothing goes for it";
}

TEST_F(ChunksTest, KnowsWhatIsApartUntilItIsReachedOrComesBack) {
  add(1000, true), add(2000, true), add(3000, true), add(4000, true);
  for (const uint64_t address : {1000, 2000, 3000}) chunks_.moved(address, false, 5, true);
  chunks_.moved(4000, false, 5);
  EXPECT_TRUE(chunks_.any_apart());
  EXPECT_EQ(chunks_.apart(), (Addresses{1000, 2000, 3000}));
  EXPECT_EQ(chunks_.apart({3000, 4000, 5000, 3000}), (Addresses{3000}));
  chunks_.reached({1000, 4000, 5000});
  EXPECT_EQ(chunks_.apart(), (Addresses{2000, 3000}));
  chunks_.moved(2000, true, 6, true);
  EXPECT_EQ(chunks_.apart(), (Addresses{3000}));
  chunks_.remove(3000);
  EXPECT_FALSE(chunks_.any_apart());
}

}  // namespace
}  // namespace bandsaw::swap
