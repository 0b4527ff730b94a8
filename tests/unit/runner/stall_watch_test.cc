// When a launch is taken for stuck.
#include "backend/runner/slicing/stall_watch.h"

#include <gtest/gtest.h>

#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

using std::chrono::milliseconds;

class StallWatchTest : public testing::Test {
 protected:
  static constexpr milliseconds kTimeout{20};

  bool overdue(uint32_t begun, uint32_t in_flight) {
    return watch_.is_overdue(begun, in_flight, kTimeout, clock_.now());
  }

  TestClock clock_;
  StallWatch watch_{clock_.now()};
};

TEST_F(StallWatchTest, IsOverdueOnceForEachTimeoutInWhichNothingEnds) {
  clock_.pass(milliseconds(19));
  EXPECT_FALSE(overdue(2, 2));
  clock_.pass(milliseconds(1));
  EXPECT_TRUE(overdue(2, 2));
  EXPECT_FALSE(overdue(2, 2));
  EXPECT_EQ(watch_.deadline(kTimeout), clock_.now() + kTimeout);
  clock_.pass(kTimeout);
  EXPECT_TRUE(overdue(2, 2));
}

TEST_F(StallWatchTest, WhatEndsGivesItTime) {
  for (uint32_t begun = 2; begun < 10; ++begun) {
    clock_.pass(milliseconds(19));
    EXPECT_FALSE(overdue(begun, 2));  // each time one more has ended
  }
  clock_.pass(milliseconds(19));
  EXPECT_FALSE(overdue(9, 2));
  clock_.pass(milliseconds(1));
  EXPECT_TRUE(overdue(9, 2));
}

TEST_F(StallWatchTest, WithNothingInFlightNothingIsOverdue) {
  clock_.pass(10 * kTimeout);
  EXPECT_FALSE(overdue(0, 0));
  clock_.pass(milliseconds(19));
  EXPECT_FALSE(overdue(1, 1)) << "the time begins when the last one had ended";
  clock_.pass(milliseconds(1));
  EXPECT_TRUE(overdue(1, 1));
}

TEST(StallTimeout, IsAsSetOrAMultipleOfTheKernelsTimeAndASecondAtLeast) {
  SlicingSettings settings;
  EXPECT_EQ(stall_timeout(settings, 0), std::chrono::seconds(1));
  EXPECT_EQ(stall_timeout(settings, 30'000'000), std::chrono::seconds(1));
  EXPECT_EQ(stall_timeout(settings, 200'000'000), std::chrono::seconds(4));
  settings.timeout_ns = 5'000'000;
  EXPECT_EQ(stall_timeout(settings, 200'000'000), milliseconds(5));
}

}  // namespace
}  // namespace bandsaw::runner
