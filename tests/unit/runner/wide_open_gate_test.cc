// What is charged for time slices where the compute gate stands wide open and the hardware switches between programs.
#include <gtest/gtest.h>

#include "tests/unit/runner/gate_fixture.h"
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

// The compute gate stands wide open, and another virtual GPU has work too.
class WideOpenGate : public GateTest {
 protected:
  static constexpr LaunchId kShort{.shape = 1, .exact = 2, .stream = 3}, kLong{.shape = 4, .exact = 5, .stream = 3};

  WideOpenGate() { gate().open = kOpenWide; }
  void launch(const LaunchId& id) {
    EXPECT_TRUE(view_.enter_launch(id));
    view_.launched(true);
  }
  // As the only launch for a while, so that it is a sample.
  void sample(const LaunchId& id, uint64_t busy_ns) {
    view_.pause();
    while (!device_.ended.empty()) device_.finish_time_slice(0);
    clock_.pass(LaunchTimes::kBetweenLater);
    launch(id);
    ASSERT_EQ(device_.ended.size(), 1u) << "not in a time slice of its own";
    device_.finish_time_slice(busy_ns);
  }
  // What is charged for the time slice that is begun, if it was measured to take so long.
  uint64_t charge(uint64_t busy_ns) {
    const uint64_t before = gate().busy_ns;
    view_.pause();
    EXPECT_EQ(device_.ended.size(), 1u);
    device_.finish_time_slice(busy_ns);
    return gate().busy_ns - before;
  }
};

TEST_F(WideOpenGate, AnUnknownLaunchIsMeasuredByItselfAndLaterOnesShareATimeSlice) {
  sample(kShort, kUnit);
  sample(kLong, 30 * kUnit);
  EXPECT_EQ(gate().busy_ns, 31 * kUnit);
  const int before = device_.begun;
  for (const LaunchId& id : {kShort, kLong, kShort}) launch(id);
  EXPECT_EQ(device_.begun, before + 1);
  EXPECT_TRUE(device_.ended.empty());
  EXPECT_EQ(charge(500 * kUnit), 32 * kUnit);  // others had the device meanwhile
  for (const LaunchId& id : {kShort, kLong, kShort}) launch(id);
  EXPECT_EQ(charge(24 * kUnit), 27 * kUnit) << "it did something else, in part";
}

// They are many units each.
TEST_F(WideOpenGate, ShortGraphsShareATimeSliceWhereNobodyElseHasTheDevice) {
  sample(kShort, kUnit);
  const auto slices_of = [this](int graphs, uint64_t nodes) {
    const int before = device_.begun;
    for (int i = 0; i < graphs; ++i) {
      EXPECT_TRUE(view_.enter_launch(kShort, 1, nodes));
      while (device_.ended.size() > 1) device_.finish_time_slice(kUnit);
    }
    view_.pause();
    while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
    return device_.begun - before;
  };
  EXPECT_EQ(slices_of(10, 100), 10) << "others wait for their ends";
  gate().no_waiters = 1;
  EXPECT_EQ(slices_of(10, 100), 2);
  grant_page_->quantum_ns = 3 * kUnit;
  EXPECT_EQ(slices_of(9, 100), 3) << "of a quantum at most";
}

// The kernels of the first may wait for what the second does.
TEST_F(WideOpenGate, AStreamThatIsFarAheadOfTheDeviceKeepsNoOtherFromIt) {
  constexpr LaunchId kOther{.shape = 1, .exact = 2, .stream = 8};
  sample(kShort, kUnit);
  int launches = 0;
  while (view_.enter_launch(kShort)) ++launches;
  EXPECT_EQ(launches, 16 * 64);
  EXPECT_FALSE(view_.may_enter(0, kShort.stream));
  EXPECT_TRUE(view_.may_enter(0, kOther.stream));
  for (int i = 0; i < 3; ++i) {
    launch(kOther);
    EXPECT_FALSE(view_.enter_launch(kShort)) << "it would prolong the other's time slice";
    view_.pause();
  }
  const size_t others = 16;
  while (device_.ended.size() > others) {
    const TimeSliceDone done = std::exchange(device_.ended[others], std::move(device_.ended.back()));
    device_.ended.pop_back();
    (void)done(kUnit);
  }
  EXPECT_FALSE(view_.enter_launch(kShort)) << "those that ended were not its own";
  device_.finish_time_slice(kUnit);
  EXPECT_TRUE(view_.enter_launch(kShort));
}

TEST_F(WideOpenGate, ManyStreamsHaveABoundInCommon) {
  uint64_t streams = 0;
  while (view_.enter_launch({.shape = 1, .exact = 2, .stream = 10 + streams})) {
    view_.launched(true);
    view_.pause();
    ++streams;
  }
  EXPECT_EQ(streams, 64u);
}

// A program that waits for its results and launches again before the end of its time slice is seen.
TEST_F(WideOpenGate, WhoHasSeenTheEndsOfAllItsWorkHasRested) {
  for (const bool over : {false, true}) {
    device_.over = over;
    EXPECT_TRUE(view_.enter(0, 1));
    view_.pause();
    EXPECT_TRUE(view_.enter(0, 1));
    EXPECT_EQ(gate().rests, over ? 1u : 0u);
    view_.pause();
    while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
    EXPECT_EQ(gate().rests, over ? 2u : 1u) << "and when its last time slice ended";
    gate().rests = 0;
  }
}

// A program that asks an event, and never waits: its time slice stays open.
TEST_F(WideOpenGate, AnOpenTimeSliceEndsWhenTheProgramHasSeenTheEndsOfAllInIt) {
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_TRUE(device_.ended.empty());
  device_.over = true;
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_EQ(device_.ended.size(), 1u);
  EXPECT_EQ(gate().rests, 1u);
}

// Else the others' time slices would lie between its begin and its first launch.
TEST_F(WideOpenGate, AStepBesideOthersIsMeasuredFromItsTurn) {
  launch(kShort);
  launch(kLong);
  EXPECT_EQ(device_.turns, 1) << "at its beginning";
  view_.pause();
  while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
  launch(kShort);
  EXPECT_EQ(device_.turns, 2);
  view_.pause();
  while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
  gate().no_waiters = 1;
  launch(kShort);
  EXPECT_EQ(device_.turns, 2) << "alone it has no turns";
}

// What it is charged for does not depend on what is measured then.
TEST_F(WideOpenGate, StepsOfNothingButKnownLaunchesAreMeasuredFromWhenTheyAreIssued) {
  sample(kShort, kUnit);
  const auto step = [this](const LaunchId& id) {
    const int before = device_.turns;
    launch(id);
    const uint64_t charged = charge(70 * kUnit);  // it waited for its turn
    EXPECT_EQ(device_.charged, id.shape == kShort.shape ? kUnit : 70 * kUnit);
    EXPECT_EQ(charged, device_.charged);
    return device_.turns - before;
  };
  int turns = 0;
  for (int i = 0; i < 100; ++i) turns += step(kShort);
  EXPECT_GT(turns, 0) << "not before some have been so";
  EXPECT_LT(turns, 20);
  EXPECT_EQ(step(kLong), 1) << "not known, and too soon for a sample";
  EXPECT_EQ(step(kShort), 1) << "what follows may be another one again";
}

TEST_F(WideOpenGate, WhoKeepsTheEngineWaitsForNoTurn) {
  grant_page_->keep_engine = 1;
  launch(kShort);
  EXPECT_EQ(device_.keeps, 1);
  EXPECT_EQ(device_.turns, 0);
}

TEST_F(WideOpenGate, HowLongIssuingTakesIsTold) {
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(view_.enter(0, 1));
      clock_.pass(std::chrono::microseconds(20));
    }
    view_.pause();
    while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
    clock_.pass(std::chrono::microseconds(500));
    EXPECT_EQ(gate().issued_ns, step == 0 ? 0 : 40 * kMicrosecond) << "of the step before";
  }
}

TEST_F(WideOpenGate, WhatHoldsOtherWorkIsChargedWhatWasMeasured) {
  sample(kShort, kUnit);
  launch(kShort);
  EXPECT_TRUE(view_.enter(0, 1));  // a fill
  EXPECT_EQ(charge(70 * kUnit), 70 * kUnit);
  launch(kShort);
  launch(kLong);  // not known, and too soon for a sample
  EXPECT_EQ(charge(70 * kUnit), 70 * kUnit);
}

TEST_F(WideOpenGate, WhatRunsBesideOtherStreamsIsNoSample) {
  constexpr LaunchId elsewhere{.shape = 1, .exact = 2, .stream = 33};
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kShort);
  launch(elsewhere);  // its time may lie within that of the sample
  device_.finish_time_slice(kUnit);
  EXPECT_EQ(charge(50 * kUnit), 50 * kUnit);
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kShort);
  device_.finish_time_slice(40 * kUnit);
  launch(kShort);
  EXPECT_EQ(charge(50 * kUnit), 40 * kUnit);
}

TEST_F(WideOpenGate, ARefusedLaunchIsNoSample) {
  clock_.pass(LaunchTimes::kBetweenLater);
  EXPECT_TRUE(view_.enter_launch(kShort));
  view_.launched(false);
  device_.finish_time_slice(1);
  launch(kShort);
  EXPECT_EQ(charge(50 * kUnit), 50 * kUnit);
}

TEST_F(WideOpenGate, AtANarrowerGateMeasuredTimeIsCharged) {
  sample(kShort, kUnit);
  gate().open = 1;
  launch(kShort);
  EXPECT_EQ(charge(70 * kUnit), 70 * kUnit);
  gate().open = 0;
  EXPECT_FALSE(view_.enter_launch(kShort));
  gate().granted = 1;
  launch(kShort);
  EXPECT_EQ(charge(70 * kUnit), 70 * kUnit);
}

// Alone, its kernels follow each other with gaps: 3 % of the time.
TEST_F(WideOpenGate, GapsBetweenKnownLaunchesAreItsOwn) {
  sample(kLong, 1000 * kUnit);
  for (int i = 0; i < 200; ++i) {
    gate().no_waiters = 1;
    launch(kLong);
    charge(1030 * kUnit);
  }
  gate().no_waiters = 0;
  launch(kLong);
  EXPECT_NEAR(static_cast<double>(charge(5000 * kUnit)), 1030.0 * kUnit, kUnit);
}

// Alone, the end of each kernel overlaps with the beginning of the next.
TEST_F(WideOpenGate, WhatOverlapsIsChargedOnce) {
  sample(kLong, 1000 * kUnit);
  for (int i = 0; i < 200; ++i) {
    gate().no_waiters = 1;
    launch(kLong);
    charge(940 * kUnit);
  }
  gate().no_waiters = 0;
  launch(kLong);
  EXPECT_NEAR(static_cast<double>(charge(5000 * kUnit)), 940.0 * kUnit, kUnit);
}

// What its launches take by themselves is known badly, and what a step of them takes alone is known well.
TEST_F(WideOpenGate, AStepIsChargedWhatItTakesAlone) {
  sample(kLong, 1000 * kUnit);
  for (int i = 0; i < 20; ++i) {
    gate().no_waiters = 1;
    launch(kLong);
    view_.rest();
    clock_.pass(std::chrono::nanoseconds(1200 * kUnit));
    charge(1200 * kUnit);
    clock_.pass(std::chrono::milliseconds(3));  // a pause
  }
  gate().no_waiters = 0;
  for (int i = 0; i < 3; ++i) {
    launch(kLong);
    view_.rest();
    clock_.pass(std::chrono::nanoseconds(5000 * kUnit));
    const auto charged = static_cast<double>(charge(5000 * kUnit));
    EXPECT_NEAR(charged, 1200.0 * kUnit, i > 1 ? 10.0 * kUnit : 300.0 * kUnit);
  }
}

// One thread of it waits for its stream while another still issues work for its own. The two run at once.
TEST_F(WideOpenGate, WorkOfSeveralStreamsIsChargedAlthoughItsTimeSlicesEndTogether) {
  sample(kLong, 30 * kUnit);
  const uint64_t before = gate().busy_ns;
  launch(kLong);
  view_.pause();
  launch(kLong);
  view_.pause();
  ASSERT_EQ(device_.ended.size(), 2u);
  device_.finish_time_slice(60 * kUnit);
  device_.finish_time_slice(kUnit / 10);  // after the end of the first
  EXPECT_EQ(gate().busy_ns - before, 60 * kUnit);
  launch(kLong);
  EXPECT_EQ(charge(8 * kUnit), 9 * kUnit) << "what was before the rest says nothing";
}

// Its time slices are too short for it, so that each sample is interrupted.
TEST_F(WideOpenGate, WhatCannotBeLearntIsToldToTheArbiter) {
  grant_page_->time_slice_ns = 10 * kUnit;
  sample(kShort, 4 * kUnit);
  EXPECT_EQ(gate().cut_samples, 0u);
  sample(kLong, 30 * kUnit);
  EXPECT_EQ(gate().cut_samples, 1u);
  grant_page_->time_slice_ns = 90 * kUnit;
  sample(kShort, 4 * kUnit);
  for (uint32_t i = 0; i < LaunchTimes::kEnough; ++i) {
    EXPECT_EQ(gate().learnt, 0u);
    clock_.pass(LaunchTimes::kAgain);
    sample(kLong, 28 * kUnit);
  }
  EXPECT_EQ(gate().cut_samples, 1u);
  EXPECT_EQ(gate().learnt, 1u);
  launch(kLong);
  EXPECT_EQ(charge(500 * kUnit), 28 * kUnit);
}

// Those of another process of its virtual GPU are shorter.
TEST_F(WideOpenGate, ItsOwnTimeSlicesCount) {
  grant_page_->time_slice_ns = 10 * kUnit;
  gate().own_time_slice_ns = 90 * kUnit;
  sample(kShort, 4 * kUnit);
  sample(kLong, 28 * kUnit);
  EXPECT_EQ(gate().cut_samples, 0u);
  launch(kLong);
  EXPECT_EQ(charge(500 * kUnit), 28 * kUnit);
}

// With the lengths of time slices their round begins anew.
TEST_F(WideOpenGate, WhileTimeSlicesChangeNothingIsLearnt) {
  grant_page_->time_slice_ns = 10 * kUnit;
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kLong);
  grant_page_->time_slice_ns = 90 * kUnit;
  device_.finish_time_slice(30 * kUnit);
  EXPECT_EQ(gate().cut_samples, 0u);
  launch(kLong);
  EXPECT_EQ(charge(500 * kUnit), 500 * kUnit);
}

// It was behind much other work.
TEST_F(WideOpenGate, WhatChangedBeforeASampleBeganDoesNotMatter) {
  grant_page_->time_slice_ns = 10 * kUnit;
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kLong);
  grant_page_->time_slice_ns = 90 * kUnit;
  launch(kShort);  // the runner sees it
  clock_.pass(std::chrono::milliseconds(200));
  device_.finish_time_slice(30 * kUnit);
  EXPECT_EQ(gate().cut_samples, 0u);
  charge(0);
  launch(kLong);
  EXPECT_EQ(charge(500 * kUnit), 30 * kUnit);
}

// A GPU at its limit of power is faster beside a program that needs little of it.
TEST_F(WideOpenGate, ProgressIsCountedInTimeAlone) {
  gate().no_waiters = 1;
  sample(kLong, 1000 * kUnit);
  gate().no_waiters = 0;
  launch(kLong);
  EXPECT_EQ(charge(920 * kUnit), 1000 * kUnit);
  launch(kLong);
  EXPECT_EQ(charge(800 * kUnit), 900 * kUnit) << "an eighth more than it took, at most";
}

// The arbiter has not said yet that there is another process.
TEST_F(WideOpenGate, BesideASiblingItIsNotAlone) {
  gate().no_waiters = 1;
  grant_page_->time_slice_ns = 10 * kUnit;
  Gate& sibling = grant_page_->gates[1][kCompute];
  sibling.begun = 5;
  sibling.ended = 4;
  sample(kLong, 60 * kUnit);
  EXPECT_EQ(gate().cut_samples, 1u);
  sibling.ended = 5;
  sample(kLong, 30 * kUnit);
  gate().no_waiters = 0;
  launch(kLong);
  EXPECT_EQ(charge(500 * kUnit), 30 * kUnit);
}

// A client of MPS: of its time slices it is known how much longer others make them.
TEST_F(WideOpenGate, BesideOthersItSaysWhatTheyCost) {
  view_.set_beside_others();
  sample(kShort, kUnit);
  gate().beside_ns = gate().beside_own_ns = 0;
  gate().open = 1;
  ASSERT_TRUE(view_.counts_launches());
  launch(kShort);
  EXPECT_EQ(charge(5 * kUnit), 5 * kUnit);
  EXPECT_EQ(gate().beside_ns, 5 * kUnit);
  EXPECT_EQ(gate().beside_own_ns, kUnit);
  gate().open = kOpenWide;
  EXPECT_TRUE(view_.enter_launch(kShort, 0.25));
  EXPECT_EQ(charge(5 * kUnit), kUnit / 4) << "three quarters of the device were left to others";
}

TEST_F(WideOpenGate, AClientOfMpsLearnsWhileItHasTheDeviceToItself) {
  view_.set_beside_others();
  gate().open = 1;
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kShort);
  EXPECT_EQ(charge(5 * kUnit), 5 * kUnit);
  EXPECT_EQ(gate().unknown_ns, 5 * kUnit) << "what it took beside others says nothing";
  EXPECT_EQ(gate().beside_ns, 0u);
  grant_page_->goes_alone = 1;
  sample(kShort, kUnit);
  grant_page_->goes_alone = 0;
  clock_.pass(LaunchTimes::kBetweenLater);
  launch(kShort);
  EXPECT_EQ(charge(7 * kUnit), 7 * kUnit);
  EXPECT_EQ(gate().beside_ns, 7 * kUnit);
  EXPECT_EQ(gate().beside_own_ns, kUnit);
  EXPECT_EQ(gate().unknown_ns, 6 * kUnit);
}

// One of four, or more, makes a time slice unknown.
TEST_F(WideOpenGate, AFewUnknownLaunchesAreTakenForAsLongAsTheOthers) {
  view_.set_beside_others();
  sample(kShort, kUnit);
  gate().beside_ns = gate().beside_own_ns = gate().unknown_ns = 0;
  gate().open = kOpenWide;
  for (int i = 0; i < 4; ++i) launch(kShort);
  launch(kLong);  // too soon for a sample
  charge(20 * kUnit);
  EXPECT_EQ(gate().beside_own_ns, 5 * kUnit);
  EXPECT_EQ(gate().unknown_ns, 0u);
  launch(kShort);
  launch(kLong);
  charge(20 * kUnit);
  EXPECT_EQ(gate().unknown_ns, 20 * kUnit);
}

TEST_F(WideOpenGate, AClientOfMpsLearnsWhatAGridSliceTakes) {
  view_.set_beside_others();
  gate().open = grant_page_->goes_alone = 1;
  const LaunchId part = identify_grid_slice(1, 132), other = identify_grid_slice(1, 20);
  clock_.pass(LaunchTimes::kBetweenLater);
  ASSERT_TRUE(view_.enter_alone(0, 1, 3, part));
  charge(3 * kUnit);
  grant_page_->goes_alone = gate().unknown_ns = 0;
  ASSERT_TRUE(view_.enter_alone(0, 1, 3, part));
  charge(9 * kUnit);
  EXPECT_EQ(gate().beside_own_ns, 3 * kUnit);
  EXPECT_EQ(gate().beside_ns, 9 * kUnit);
  ASSERT_TRUE(view_.enter_alone(0, 1, 3, other));
  charge(9 * kUnit);
  EXPECT_EQ(gate().unknown_ns, 9 * kUnit);
}

// The same of a guest, whose launches are not cut.
class WideOpenGuest : public Sliced {
 protected:
  WideOpenGuest() : Sliced(SlicingSettings{}) {
    gate().open = kOpenWide;
    std::lock_guard lock(device().mutex);
    device().hold = true;
  }
};

TEST_F(WideOpenGuest, LaunchesAreChargedWhatTheyTakeByThemselves) {
  launch(6);
  device().end_grid_slice(0, 3000);  // it is a sample
  TestRing::wait([&] { return gate().ended == 1; });
  EXPECT_EQ(gate().busy_ns, 3000u);
  launch(6);
  device().end_grid_slice(0, 2'000'000);
  TestRing::wait([&] { return gate().ended == 2; });
  EXPECT_EQ(gate().busy_ns, 6000u);
}

TEST_F(WideOpenGuest, ALaunchThatIsRefusedIsNoSample) {
  {
    std::lock_guard lock(device().mutex);
    device().fail_at = 0;
  }
  launch(6);
  device().end_grid_slice(0, 3000);
  launch(6);
  device().end_grid_slice(0, 2'000'000);
  TestRing::wait([&] { return gate().ended == 2; });
  EXPECT_EQ(gate().busy_ns, 2'003'000u);
}

}  // namespace
}  // namespace bandsaw::runner
