#include "backend/runner/execution/step_times.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kStep = 100'000;  // ns

class StepTimesTest : public testing::Test {
 protected:
  uint64_t kept(uint64_t own, uint64_t ns) {
    steps_.launch(own);
    return steps_.end_kept(ns);
  }
  void alone(uint64_t own, uint64_t ns) {
    steps_.launch(own);
    steps_.end_alone(ns);
  }

  StepTimes steps_;
};

TEST_F(StepTimesTest, NothingIsToldOfWhoWasNeverAlone) { EXPECT_EQ(kept(kStep, 2 * kStep), 0u); }

TEST_F(StepTimesTest, StepsMayDifferInLength) {
  for (uint64_t i = 1; i < 20; ++i) alone(i * kStep, 2 * i * kStep);
  for (uint64_t i = 1; i < 20; ++i)
    EXPECT_NEAR(static_cast<double>(kept(i * kStep, 21 * i * kStep / 10)), i * kStep / 10.0, 2);
}

TEST_F(StepTimesTest, WhatIsShorterIsTakenOff) {
  alone(kStep, kStep);
  EXPECT_EQ(kept(kStep, kStep - 1000), 0u);
  EXPECT_EQ(kept(kStep, kStep + 3000), 2000u);
  for (int i = 0; i < 100; ++i) kept(kStep, kStep / 2);
  EXPECT_EQ(kept(kStep, kStep + 40'000), 0u);
  uint64_t told = 0;
  for (int i = 0; i < 40; ++i) told += kept(kStep, kStep + 40'000);
  EXPECT_NEAR(static_cast<double>(told), 41 * 40e3 - 1e6, 2) << "not forever";
}

TEST_F(StepTimesTest, AnInterruptedStepIsAsMuchLongerAsTheOthers) {
  alone(kStep, kStep);
  EXPECT_EQ(kept(kStep, 50 * kStep), 0u);
  for (int i = 0; i < 10; ++i) kept(kStep, kStep + kStep / 10);
  EXPECT_NEAR(static_cast<double>(kept(kStep, 50 * kStep)), kStep / 10.0, 2);
}

TEST_F(StepTimesTest, UnknownLaunchesSayNothing) {
  alone(kStep, kStep);
  steps_.launch(kStep);
  steps_.launch(0);
  EXPECT_EQ(steps_.end_kept(2 * kStep), 0u);
  EXPECT_EQ(kept(kStep, kStep + 1000), 1000u) << "of the step before nothing is left";
  steps_.launch(0);
  steps_.end_alone(50 * kStep);
  EXPECT_EQ(kept(kStep, kStep + 1000), 1000u);
}

TEST_F(StepTimesTest, WhatWasLearntLongAgoIsForgotten) {
  for (int i = 0; i < 10'000; ++i) alone(kStep, 3 * kStep);
  for (int i = 0; i < 20'000; ++i) alone(kStep, kStep);
  EXPECT_NEAR(static_cast<double>(kept(kStep, kStep + 10'000)), 10'000, 100);
}

}  // namespace
}  // namespace bandsaw::runner
