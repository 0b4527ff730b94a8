// Who keeps the engine in its pauses, on hardware of our own, in virtual time.
#include "tests/unit/sched/served_in_turns.h"

namespace bandsaw::sched {
namespace {

class TimeSliceKeepsTest : public TimeSliceWeightsTest {};

// Each step would cost two switches of the hardware, each longer than it.
TEST_F(TimeSliceKeepsTest, WhoWaitsForEachOfManyShortStepsGetsItsShare) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond);
  steps.knows = true;
  add(2, 50);
  run_for(3 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_FALSE(weights_.keeps(2));
  served(1);
  EXPECT_NEAR(progress(steps, 2 * kSecond), 0.5, 0.02);
  EXPECT_NEAR(served(2 * kSecond)[1], 0.5, 0.03);
}

// It has a third of what it was promised, and nearly half of what it would need if it were not for its pauses.
TEST_F(TimeSliceKeepsTest, WhoWaitsForEachKernelGetsItsShareBesideTraining) {
  programs_.reserve(2);
  Program& waits = add(1, 25, 170 * kMicrosecond, 11 * kMicrosecond);
  waits.knows = true;
  add(2, 75, 78 * kMillisecond, 1300 * kMicrosecond).knows = true;
  run_for(4 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_GE(progress(waits, 2 * kSecond), 0.23);
}

// Its steps are longer than switches, so it is not far behind; but what switches cost is lost to both.
TEST_F(TimeSliceKeepsTest, WhoHardlyPausesKeepsTheEngineThoughItIsLittleBehind) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 1000 * kMicrosecond, 60 * kMicrosecond);
  steps.knows = true;
  add(2, 50, 74 * kMillisecond, 60 * kMicrosecond).knows = true;
  run_for(2 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  served(1);
  EXPECT_NEAR(progress(steps, 4 * kSecond), 0.5, 0.02);
  EXPECT_NEAR(served(4 * kSecond)[1], 0.5, 0.02);
}

// The clock is lower beside one that draws all power.
TEST_F(TimeSliceKeepsTest, WhoseStepsAreLongerBesideOthersGetsItsShareOfWhatItDoesAlone) {
  for (const double slower : {0.05, 0.12}) {
    start_over();
    programs_.reserve(2);
    Program& steps = add(1, 25, 1000 * kMicrosecond, 60 * kMicrosecond);
    steps.knows = true;
    steps.slower = slower;
    add(2, 75, 74 * kMillisecond, 60 * kMicrosecond).knows = true;
    run_for(4 * kSecond);
    EXPECT_TRUE(weights_.keeps(1));
    EXPECT_NEAR(progress(steps, 4 * kSecond), 0.25, 0.01) << slower;
  }
}

// What its steps take longer in its time slices, and what interruptions cost, is not its work alone.
TEST_F(TimeSliceKeepsTest, WhoTellsWhatItsStepsTakeAloneLosesNoMoreThanOthers) {
  for (const bool tells : {true, false}) {
    start_over();
    programs_.reserve(2);
    Program& steps = add(1, 25, 1600 * kMicrosecond, 60 * kMicrosecond);
    Program& training = add(2, 75, 74 * kMillisecond, 1300 * kMicrosecond);
    steps.knows = training.knows = true;
    steps.tells = tells;
    steps.slower = 0.05;
    training.lost = 600 * kMicrosecond;
    run_for(4 * kSecond);
    EXPECT_TRUE(weights_.keeps(1));
    const Time before = training.steps;
    const double had = progress(steps, 20 * kSecond);
    const double other = static_cast<double>((training.steps - before) * (training.busy + training.pause)) /
                         static_cast<double>(20 * kSecond);
    EXPECT_GE(other, 0.72);
    if (tells) {
      EXPECT_NEAR(had / (had + other), 0.25, 0.003);
    } else {
      EXPECT_LT(had / (had + other), 0.242) << "it is charged by its time slices";
    }
  }
}

// Whoever says that its work takes for ever is charged nearly as much.
TEST_F(TimeSliceKeepsTest, WhoClaimsToBeSlowedDownGainsLittle) {
  programs_.reserve(2);
  Program& steps = add(1, 25, 1000 * kMicrosecond, 60 * kMicrosecond);
  steps.knows = true;
  add(2, 75, 74 * kMillisecond, 60 * kMicrosecond).knows = true;
  steps.tells = false;
  for (int i = 0; i < 400; ++i) {
    steps.told_done += 1;
    run_for(10 * kMillisecond);
  }
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_LE(progress(steps, kSecond), 0.30);
}

TEST_F(TimeSliceKeepsTest, WhoHardlyPausesIsHelpedSoon) {
  programs_.reserve(2);
  add(1, 50, 350 * kMicrosecond, 60 * kMicrosecond).knows = true;
  add(2, 50);
  run_for(600 * kMillisecond);
  EXPECT_TRUE(weights_.keeps(1));
}

// Both have waited for seconds, as for what they are to do. What a pause between two steps is, the next steps tell.
TEST_F(TimeSliceKeepsTest, WhoHasWaitedForWorkIsNotTakenForOneThatPauses) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 1350 * kMicrosecond, kSecond);
  Program& product = add(2, 50, 165 * kMillisecond, kSecond);
  steps.knows = product.knows = true;
  run_for(5 * kSecond);
  steps.pause = product.pause = 50 * kMicrosecond;
  steps.back_at = product.back_at = now_;
  run_for(800 * kMillisecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_GE(after(kSecond, 2 * kSecond)[0], 0.47);
}

// A time slice holds two of its steps, if the pause between them does not end it.
TEST_F(TimeSliceKeepsTest, WhoseStepsArePartsOfATimeSliceDoesNotLoseTwoSwitchesAStep) {
  for (const Time step : {2, 5, 8}) {
    start_over();
    programs_.reserve(2);
    Program& steps = add(1, 50, step * kMillisecond, 120 * kMicrosecond);
    steps.knows = true;
    add(2, 50).knows = true;
    run_for(8 * kSecond);
    served(1);
    const double had = progress(steps, 4 * kSecond), other = served(4 * kSecond)[1];
    EXPECT_GE(had, 0.485) << step;
    EXPECT_GE(had + other, 0.97) << step;
  }
}

// Others use its pauses, and it has what it was promised.
TEST_F(TimeSliceKeepsTest, WhoPausesForLongIsNotHurried) {
  programs_.reserve(2);
  Program& pauses = add(1, 50, 350 * kMicrosecond, 250 * kMicrosecond);
  pauses.knows = true;
  add(2, 50, 74 * kMillisecond, 60 * kMicrosecond).knows = true;
  run_for(4 * kSecond);
  EXPECT_FALSE(weights_.keeps(1));
  EXPECT_GE(progress(pauses, 2 * kSecond), 0.5);
}

// Each works while the other pauses. That is more in sum, but one had four fifths of its promise, and the other more.
TEST_F(TimeSliceKeepsTest, WhoHasTooLittleBesideOneThatPausesAndHasMoreThanItsShareKeepsTheEngine) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 350 * kMicrosecond, 60 * kMicrosecond);
  Program& pauses = add(2, 50, 1000 * kMicrosecond, 500 * kMicrosecond);
  steps.knows = pauses.knows = true;
  run_for(6 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_FALSE(weights_.keeps(2));
  EXPECT_GE(progress(steps, 4 * kSecond), 0.485);
  EXPECT_GE(progress(pauses, 4 * kSecond), 0.485);
}

// The same work, issued slowly: what it was promised takes less of the engine.
TEST_F(TimeSliceKeepsTest, WhoIssuesItsWorkSlowlyIsNotBehind) {
  programs_.reserve(2);
  Program& slow = add(1, 25, 350 * kMicrosecond, 20 * kMicrosecond);
  slow.knows = true;
  slow.issue = 1200 * kMicrosecond;
  add(2, 75, 78 * kMillisecond, 1300 * kMicrosecond).knows = true;
  run_for(10 * kSecond);
  EXPECT_FALSE(weights_.keeps(1));
  const Time before = slow.steps;
  run_for(2 * kSecond);
  EXPECT_GE(static_cast<double>((slow.steps - before) * slow.issue), 0.25 * 2e9);
}

// Who is idle for most of its time gains by the engine's being kept, unless its work is much slower then.
TEST_F(TimeSliceKeepsTest, WhoGetsLessDoneByItDoesNotKeepTheEngine) {
  for (const double slower : {0.0, 5.0}) {
    start_over();
    programs_.reserve(2);
    Program& idles = add(1, 25, 100 * kMicrosecond, 300 * kMicrosecond);
    idles.knows = true;
    idles.slower = slower;
    add(2, 75);
    run_for(2 * kSecond);
    EXPECT_FALSE(weights_.keeps(1));
    const double before = progress(idles, 500 * kMillisecond);
    run_for(2 * kSecond);
    EXPECT_TRUE(weights_.keeps(1));
    run_for(3 * kSecond);
    EXPECT_EQ(weights_.keeps(1), slower == 0);
    EXPECT_GE(progress(idles, kSecond), 0.9 * before) << slower;
  }
}

// It comes back while the other has the engine, and so there are more switches than samples tell.
TEST_F(TimeSliceKeepsTest, WhoKeepsTheEngineIsNotChargedForSwitchesToOneThatPauses) {
  programs_.reserve(2);
  Program& steps = add(1, 25, 500 * kMicrosecond, 30 * kMicrosecond);
  Program& pauses = add(2, 75, 1000 * kMicrosecond, 300 * kMicrosecond);
  steps.knows = pauses.knows = true;
  steps.lost = pauses.lost = 60 * kMicrosecond;
  run_for(6 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_GE(progress(steps, 4 * kSecond), 0.2425);
  EXPECT_GE(progress(pauses, 4 * kSecond), 0.7275);
}

// What their interruptions cost them is not its alone, though it is the only one that fills all its time slices.
TEST_F(TimeSliceKeepsTest, WhoKeepsTheEngineForASmallPartDoesNotPayForAllThatOthersLose) {
  programs_.reserve(3);
  Program& steps = add(1, 11, 10 * kMillisecond, 100 * kMicrosecond);
  add(2, 70, 74 * kMillisecond, 1300 * kMicrosecond);
  Program& little = add(3, 19, 500 * kMicrosecond, 600 * kMicrosecond);
  little.issue = 900 * kMicrosecond;
  for (Program& program : programs_) {
    program.knows = true;
    program.lost = 60 * kMicrosecond;
  }
  run_for(8 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_GE(progress(steps, 6 * kSecond), 0.105);
}

// How long steps are issued on average says nothing of a short one. It is a little behind for long.
TEST_F(TimeSliceKeepsTest, WhoseStepsDifferIsNotTakenForOneThatIssuesItsWorkSlowly) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 3500 * kMicrosecond, 3 * kMillisecond);
  steps.other_busy = 300 * kMicrosecond;
  steps.issue = 1300 * kMicrosecond;
  steps.knows = true;
  add(2, 50).knows = true;
  run_for(2 * kSecond);
  steps.pause = 80 * kMicrosecond;
  run_for(2 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_GE(progress(steps, 4 * kSecond), 0.485);
}

TEST_F(TimeSliceKeepsTest, NobodyKeepsTheEngineInLongPausesOrIfItIsNotFarBehind) {
  programs_.reserve(2);
  add(1, 50, 68 * kMicrosecond, 900 * kMicrosecond);
  add(2, 50);
  run_for(4 * kSecond);
  EXPECT_FALSE(weights_.keeps(1)) << "the others can use its pauses";
  start_over();
  add(1, 25, 550 * kMicrosecond, 250 * kMicrosecond).knows = true;
  add(2, 75, 67 * kMillisecond, 100 * kMicrosecond).knows = true;
  run_for(4 * kSecond);
  EXPECT_FALSE(weights_.keeps(1));
}

TEST_F(TimeSliceKeepsTest, WhereKeepingTheEngineIsInVainItIsTriedSeldom) {
  programs_.reserve(2);
  Program& steps = add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond);
  steps.can_keep = false;
  add(2, 50);
  int tries = 0;
  Time kept = 0;
  for (bool before = false; now_ < 60 * kSecond;) {
    run_for(10 * kMillisecond);
    const bool keeps = weights_.keeps(1);
    tries += keeps && !before;
    kept += keeps ? 10 * kMillisecond : 0;
    before = keeps;
  }
  EXPECT_GE(tries, 3);
  EXPECT_LE(tries, 5);
  EXPECT_LE(kept, 4 * kSecond);
}

TEST_F(TimeSliceKeepsTest, WhatWasInVainForOneProgramIsTriedForTheNextOfItsVirtualGpu) {
  programs_.reserve(3);
  Program& steps = add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond);
  steps.can_keep = false;
  add(2, 50);
  run_for(30 * kSecond);
  EXPECT_FALSE(weights_.keeps(1));
  steps.ended = true;
  run_for(100 * kMillisecond);
  Program& next = add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond);
  next.knows = true;
  next.back_at = now_;
  run_for(3 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  EXPECT_NEAR(progress(next, 2 * kSecond), 0.5, 0.02);
}

TEST_F(TimeSliceKeepsTest, ALatencyBoundIsKeptByShortTimeSlicesNotByKeepingTheEngine) {
  programs_.reserve(2);
  add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond, 500 * kMicrosecond);
  add(2, 50);
  run_for(4 * kSecond);
  EXPECT_FALSE(weights_.keeps(1));
}

TEST_F(TimeSliceKeepsTest, WhoIsAloneKeepsNothingAndDoesAgainWhenOthersComeBack) {
  programs_.reserve(2);
  add(1, 50, 68 * kMicrosecond, 8 * kMicrosecond);
  Program& other = add(2, 50);
  run_for(3 * kSecond);
  EXPECT_TRUE(weights_.keeps(1));
  other.back_at = now_ + kSecond;
  run_for(500 * kMillisecond);
  EXPECT_FALSE(weights_.keeps(1));
  run_for(600 * kMillisecond);
  EXPECT_TRUE(weights_.keeps(1));
}

}  // namespace
}  // namespace bandsaw::sched
