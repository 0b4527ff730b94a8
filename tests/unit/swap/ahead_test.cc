// Programs that use their chunks in one order or another, on a device with room for some of them, in virtual time.
#include "memory/swap/ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace bandsaw::swap {
namespace {

constexpr uint64_t kSize = 100, kCount = 192, kFit = 96, kAheadMost = kFit / 8;

class AheadTest : public testing::Test {
 protected:
  AheadTest() {
    for (uint64_t i = 0; i < kCount; ++i) {
      chunks_.add(address(i), {.allocation = address(i), .bytes = kSize, .on_device = i < kFit});
    }
  }
  static uint64_t address(uint64_t i) { return 0x1000 + i * kSize; }
  // Work that uses it, as runners let it through.
  void use(uint64_t i) {
    now_ += 1'000'000;
    const std::vector<uint64_t> wanted{address(i)};
    if (chunks_.away(wanted) != 0) ahead_.waits(chunks_, wanted);
    chunks_.used(wanted, now_);
    if (chunks_.away(wanted) == 0) return;
    Chunks::Plan plan = chunks_.bring(wanted, 0);
    chunks_.bring_ahead(wanted, ahead_.since(), 0, std::min(ahead_.most(), kAheadMost), &plan);
    EXPECT_EQ(plan.out.size(), plan.in.size());
    for (const uint64_t chunk : plan.out) chunks_.moved(chunk, false, now_);
    for (const uint64_t chunk : plan.in) chunks_.moved(chunk, true, now_);
    ++stops_;
    moves_ += plan.in.size();
  }
  void run(uint64_t uses, const std::function<uint64_t(uint64_t)>& which) {
    stops_ = moves_ = 0;
    for (uint64_t i = 0; i < uses; ++i) use(which(i));
  }

  Chunks chunks_;
  Ahead ahead_;
  uint64_t now_ = 1, stops_ = 0, moves_ = 0;
};

uint64_t round_and_round(uint64_t i) { return i % kCount; }

TEST_F(AheadTest, GoingRoundStopsSeldomAndMovesNoMoreThanItMust) {
  run(4 * kCount, round_and_round);
  run(10 * kCount, round_and_round);
  EXPECT_LE(moves_, 10 * (kCount - kFit) * 5 / 4);
  EXPECT_LE(stops_, moves_ / 6);
}

TEST_F(AheadTest, WhatIsNotUsedAnyMoreGoesAndDoesNotCome) {
  run(2 * kCount, round_and_round);
  const auto some = [](uint64_t i) { return 8 + i % (kCount - 8); };
  run(6 * kCount, some);
  run(10 * kCount, some);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_FALSE(chunks_.find(address(i))->on_device) << i;
  EXPECT_LE(stops_, moves_ / 6);
}

TEST_F(AheadTest, UsesWithoutAnOrderBringNothingAhead) {
  run(2 * kCount, round_and_round);
  uint64_t state = 1;
  run(20 * kCount, [&](uint64_t) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % kCount;
  });
  EXPECT_LE(moves_, stops_ * 6 / 5);
}

TEST_F(AheadTest, ATurnInTheOrderEndsIt) {
  run(6 * kCount, round_and_round);
  EXPECT_GT(ahead_.most(), 0u);
  uint64_t latest = kCount;
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto used = [this](uint64_t which) { return chunks_.find(address(which))->used_ns; };
    if (!chunks_.find(address(i))->on_device && (latest == kCount || used(i) > used(latest))) latest = i;
  }
  use(latest);
  EXPECT_EQ(ahead_.most(), 0u);
}

}  // namespace
}  // namespace bandsaw::swap
