#include "backend/control/stall_budget.h"

#include <gtest/gtest.h>

#include <limits>

namespace bandsaw {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;
constexpr uint32_t kMost = 30;  // ms in a second

class StallBudgetTest : public testing::Test {
 protected:
  std::atomic<int64_t> word_{0};
  StallBudget budget_{&word_};
  int64_t now_ = 5 * kSecond;
};

TEST_F(StallBudgetTest, SomeAtOnceAndThenAsManyAsTheRateAllows) {
  int now = 0;
  while (budget_.take_now(kProgramStall, kMost, now_) == 0) ++now;
  EXPECT_EQ(now, kStallBurst / kProgramStall);
  int later = 0;
  for (const int64_t end = now_ + 60 * kSecond; now_ < end; now_ += 10 * kMs) {
    later += budget_.take_now(kProgramStall, kMost, now_) == 0;
  }
  EXPECT_NEAR(later, 60 * kMost * kMs / kProgramStall, 3);
}

TEST_F(StallBudgetTest, SaysWhenTheNextMayBegin) {
  while (budget_.take_now(kProgramStall, kMost, now_) == 0) continue;
  const int64_t wait = budget_.take_now(kProgramStall, kMost, now_);
  ASSERT_GT(wait, 0);
  EXPECT_GT(budget_.take_now(kProgramStall, kMost, now_ + wait - kMs), 0);
  EXPECT_EQ(budget_.take_now(kProgramStall, kMost, now_ + wait), 0);
}

TEST_F(StallBudgetTest, AFaultIsPaidAfterwards) {
  EXPECT_GT(budget_.take(kFaultStall, kMost, now_), 0);
  EXPECT_EQ(budget_.owed(kMost, now_), kFaultStall);
  const int64_t wait = budget_.take_now(kProgramStall, kMost, now_);
  EXPECT_EQ(wait, (kFaultStall + kProgramStall - kStallBurst) * 1000 / kMost);
  EXPECT_EQ(budget_.owed(kMost, now_ + kFaultStall * 1000 / kMost), 0);
}

TEST_F(StallBudgetTest, FaultsInMassesAreNotHeldAgainstAnybodyForEver) {
  for (int i = 0; i < 1000; ++i) (void)budget_.take(kFaultStall, kMost, now_);
  EXPECT_LE(budget_.take_now(kProgramStall, kMost, now_), 60 * kSecond);
  EXPECT_EQ(budget_.take_now(kProgramStall, kMost, now_ + 61 * kSecond + kFaultStall * 1000 / kMost), 0);
}

TEST_F(StallBudgetTest, WithoutABoundNothingWaits) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(budget_.take(kFaultStall, kStallUnlimited, now_), 0);
    EXPECT_EQ(budget_.take_now(kProgramStall, kStallUnlimited, now_), 0);
  }
  EXPECT_EQ(budget_.owed(kMost, now_), 0);
}

// Runners write it, and one may have been taken over.
TEST_F(StallBudgetTest, AnyWordIsHarmless) {
  for (const int64_t word : {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    for (const uint32_t most : {0u, 1u, kMost, ~0u}) {
      word_ = word;
      const int64_t owed = budget_.owed(most, now_), wait = budget_.take_now(kProgramStall, most, now_);
      EXPECT_GE(owed, 0);
      EXPECT_GE(wait, 0);
      EXPECT_LE(wait, 60 * kSecond);
      EXPECT_GE(budget_.take(kFaultStall, most, now_), 0);
    }
  }
}

TEST(OthersWork, MeansLately) {
  EXPECT_FALSE(others_work(0, kSecond));
  EXPECT_TRUE(others_work(kSecond, kSecond + kOthersWorkFor));
  EXPECT_FALSE(others_work(kSecond, kSecond + kOthersWorkFor + 1));
}

}  // namespace
}  // namespace bandsaw
