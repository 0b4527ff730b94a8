#include "backend/runner/execution/step_times.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kStep = 100'000;  // ns

class StepTimesTest : public testing::Test {
 protected:
  double beside(uint64_t own) {
    launches(own);
    return static_cast<double>(steps_.end().step_ns);
  }
  void alone(uint64_t own, uint64_t ns) {
    launches(own);
    steps_.end_alone(ns, ns);
  }
  // No two steps have the same.
  void launches(uint64_t own) { steps_.launch(++shape_, own); }

  StepTimes steps_;
  uint64_t shape_ = 1000;
};

TEST_F(StepTimesTest, NothingIsToldOfWhoWasNeverAlone) { EXPECT_EQ(beside(kStep), 0); }

TEST_F(StepTimesTest, StepsMayDifferInLength) {
  for (uint64_t i = 1; i < 20; ++i) alone(i * kStep, 2 * i * kStep);
  for (uint64_t i = 1; i < 20; ++i) EXPECT_NEAR(beside(i * kStep), 2.0 * static_cast<double>(i * kStep), 2);
}

TEST_F(StepTimesTest, AStepWithUnknownLaunchesIsTakenForOneLikeTheOthers) {
  alone(kStep, 2 * kStep);
  alone(0, 50 * kStep);
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(beside(kStep), 2 * kStep, 2);
  launches(kStep);
  EXPECT_NEAR(beside(0), 4 * kStep, 2) << "of two launches";
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

TEST_F(StepTimesTest, AStepOfTheSameLaunchesTakesWhatItTookAlone) {
  const auto step = [this](uint64_t own) {
    for (const uint64_t shape : {7, 8, 8}) steps_.launch(shape, own);
  };
  for (int i = 0; i < 10; ++i) {
    step(kStep);
    steps_.end_alone(5 * kStep, 4 * kStep);
  }
  step(kStep * 3 / 2);
  const StepTimes::Takes more = steps_.end();
  EXPECT_EQ(more.step_ns, 5 * kStep);
  EXPECT_NEAR(more.launches, 4 / 4.5, 1e-6) << "they are taken for more than they take";
  step(0);
  const StepTimes::Takes unknown = steps_.end();
  EXPECT_EQ(unknown.step_ns, 5 * kStep);
  EXPECT_EQ(unknown.launches, 0);
  step(3 * kStep);
  const StepTimes::Takes other = steps_.end();
  EXPECT_NEAR(static_cast<double>(other.step_ns), 15 * kStep, kStep) << "it works on other data";
  EXPECT_EQ(other.launches, 0);
}

TEST_F(StepTimesTest, OneStepThatWasSlowerSaysLittle) {
  const auto step = [this](uint64_t ns) {
    steps_.launch(7, kStep);
    steps_.end_alone(ns, ns);
  };
  for (int i = 0; i < 10; ++i) step(kStep);
  step(2 * kStep);
  steps_.launch(7, kStep);
  EXPECT_LT(steps_.end().step_ns, kStep * 6 / 5);
}

TEST_F(StepTimesTest, AStepEndsWhenTheProgramHasWaited) {
  steps_.launch(1, kStep);
  EXPECT_FALSE(steps_.may_end());
  steps_.waits();
  EXPECT_TRUE(steps_.may_end());
  steps_.end();
  EXPECT_FALSE(steps_.may_end());
  int pauses = 1;
  while (!steps_.may_end() && pauses < 100) ++pauses;
  EXPECT_LT(pauses, 50) << "it waits in ways that are not seen";
  EXPECT_TRUE(steps_.may_end());
}

}  // namespace
}  // namespace bandsaw::runner
