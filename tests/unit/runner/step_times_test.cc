#include "backend/runner/execution/step_times.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kStep = 100'000;  // ns

class StepTimesTest : public testing::Test {
 protected:
  double beside(uint64_t own) {
    steps_.launch(own);
    return static_cast<double>(steps_.end());
  }
  void alone(uint64_t own, uint64_t ns) {
    steps_.launch(own);
    steps_.end_alone(ns);
  }

  StepTimes steps_;
};

TEST_F(StepTimesTest, NothingIsToldOfWhoWasNeverAlone) { EXPECT_EQ(beside(kStep), 0); }

TEST_F(StepTimesTest, StepsMayDifferInLength) {
  for (uint64_t i = 1; i < 20; ++i) alone(i * kStep, 2 * i * kStep);
  for (uint64_t i = 1; i < 20; ++i) EXPECT_NEAR(beside(i * kStep), 2.0 * static_cast<double>(i * kStep), 2);
}

TEST_F(StepTimesTest, AStepWithUnknownLaunchesIsTakenForOneLikeTheOthers) {
  alone(kStep, 2 * kStep);
  steps_.launch(0);
  steps_.end_alone(50 * kStep);
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(beside(kStep), 2 * kStep, 2);
  steps_.launch(kStep);
  EXPECT_NEAR(beside(0), 2 * kStep, 2);
  EXPECT_NEAR(beside(3 * kStep), 6 * kStep, 2) << "of the step before nothing is left";
}

TEST_F(StepTimesTest, WhereMostAreUnknownNothingIsTold) {
  alone(kStep, 2 * kStep);
  for (int i = 0; i < 100; ++i) {
    beside(0);
    beside(0);
    EXPECT_EQ(beside(kStep), 0);
  }
  for (int i = 0; i < 200; ++i) beside(kStep);
  EXPECT_NEAR(beside(kStep), 2 * kStep, 2);
}

TEST_F(StepTimesTest, WhatWasLearntLongAgoIsForgotten) {
  for (int i = 0; i < 10'000; ++i) alone(kStep, 3 * kStep);
  for (int i = 0; i < 20'000; ++i) alone(kStep, kStep);
  EXPECT_NEAR(beside(kStep), kStep, 100);
}

}  // namespace
}  // namespace bandsaw::runner
