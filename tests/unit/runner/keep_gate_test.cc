// A gate that keeps the compute engine over the pauses of a program.
#include <gtest/gtest.h>

#include "tests/unit/runner/gate_fixture.h"
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

class KeepGate : public GateTest {
 protected:
  KeepGate() {
    gate().open = kOpenWide;
    grant_page_->keep_engine = 1;
  }
  // A short kernel, from its launch to its end.
  void step() {
    EXPECT_TRUE(view_.enter(kCompute, 1));
    view_.pause();
    device_.finish_time_slice(kUnit);
  }
  // One whose length may be known.
  void launch(uint64_t busy_ns) {
    static constexpr LaunchId kKernel{.shape = 1, .exact = 2, .stream = 3};
    EXPECT_TRUE(view_.enter_launch(kKernel));
    view_.launched(true);
    view_.pause();
    while (!device_.ended.empty()) device_.finish_time_slice(busy_ns);
  }
  // Alone, where nothing is kept.
  void learn(uint64_t busy_ns) {
    grant_page_->keep_engine = 0;
    gate().no_waiters = 1;
    for (int i = 0; i < 20; ++i) {
      clock_.pass(LaunchTimes::kBetweenLater);
      launch(busy_ns);
    }
    gate().no_waiters = 0;
    grant_page_->keep_engine = 1;
  }
};

TEST_F(KeepGate, AGateThatKeepsTheEngineDoesNotRest) {
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(device_.keeps, 1);
  EXPECT_EQ(gate().rests, 0u);
  EXPECT_EQ(gate().begun - gate().ended, 1u);
  EXPECT_EQ(gate().busy_ns, 3 * kUnit);
  clock_.pass(std::chrono::microseconds(900));
  EXPECT_TRUE(device_.goes_on());
  step();
  clock_.pass(std::chrono::microseconds(900));
  EXPECT_TRUE(device_.goes_on()) << "it has had work since";
}

TEST_F(KeepGate, WhatTheProgramHasSeenTheEndOfIsNoRestWhileTheEngineIsKept) {
  step();
  device_.over = true;
  step();
  EXPECT_EQ(gate().rests, 0u);
}

TEST_F(KeepGate, WhileItIsKeptAMomentWithoutRecordsIsTold) {
  view_.quiet();
  EXPECT_EQ(device_.behinds, 0);
  step();
  view_.quiet();
  EXPECT_EQ(device_.behinds, 1);
  EXPECT_EQ(view_.longest_sleep(), std::chrono::nanoseconds::max());
  device_.late = true;
  view_.quiet();
  EXPECT_LE(view_.longest_sleep(), std::chrono::milliseconds(1)) << "it is to be told again soon";
  device_.let_go();
  view_.quiet();
  EXPECT_EQ(device_.behinds, 2);
  EXPECT_EQ(view_.longest_sleep(), std::chrono::nanoseconds::max());
}

// Beside its work it costs a program more, so that is for such as leave gaps.
TEST_F(KeepGate, IsKeptBehindItsWorkOnceThatIsSeenToBeIssuedAhead) {
  const auto steps = [this](std::chrono::nanoseconds between) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(view_.enter_launch({.shape = 1, .exact = 2, .stream = 3}));
      clock_.pass(between);
      launch(2 * kUnit + kUnit / 4);
      view_.rest();
    }
  };
  // In so long, asked as often as the device does.
  const auto becomes = [&](Keep way, std::chrono::nanoseconds between, uint64_t more_ns) {
    for (int i = 0; i < 200; ++i) {
      steps(between);
      clock_.pass(std::chrono::nanoseconds(more_ns));
      if (device_.how() == way) return true;
    }
    return false;
  };
  step();
  EXPECT_EQ(device_.how(), Keep::kBesideWork) << "nothing is known";
  learn(kUnit);
  EXPECT_TRUE(becomes(Keep::kBehindWork, std::chrono::nanoseconds(kUnit / 2), 5 * kUnit)) << "tries it";
  EXPECT_FALSE(becomes(Keep::kBesideWork, std::chrono::nanoseconds(kUnit / 2), 0)) << "more gets done";
  EXPECT_TRUE(becomes(Keep::kBesideWork, std::chrono::nanoseconds(3 * kUnit), 0)) << "gaps in its steps";
}

// What a program gets done in 100 ms, by how its engine is kept.
class KeepTrialTest : public testing::Test {
 protected:
  Keep after(std::chrono::milliseconds time, uint64_t beside, uint64_t behind, bool ahead = true) {
    for (auto left = time; left.count() > 0; left -= std::chrono::milliseconds(1)) {
      now_ += std::chrono::milliseconds(1);
      done_ += (way_ == Keep::kBehindWork ? behind : beside) * 10'000;
      const Keep way = trial_.ask(now_, since_, {.done_ns = done_, .ahead = ahead, .slow = slow_});
      if (way == Keep::kBehindWork) ++behind_ms_;
      way_ = way;
    }
    return way_;
  }
  using Seconds = std::chrono::seconds;
  KeepTrial trial_;
  KeepTrial::Point now_{Seconds(3600)}, since_{Seconds(3000)};
  uint64_t done_ = 0;
  Keep way_ = Keep::kBesideWork;
  int behind_ms_ = 0;
  bool slow_ = true;
};

TEST_F(KeepTrialTest, StaysWhereMoreGetsDone) {
  EXPECT_EQ(after(Seconds(2), 70, 90), Keep::kBehindWork);
  behind_ms_ = 0;
  EXPECT_EQ(after(Seconds(18), 70, 90), Keep::kBehindWork);
  EXPECT_EQ(behind_ms_, 18'000);
}

TEST_F(KeepTrialTest, AWrongTryIsShortAndSeldom) {
  EXPECT_EQ(after(Seconds(2), 90, 70), Keep::kBesideWork);
  EXPECT_LT(behind_ms_, 500);
  EXPECT_EQ(after(std::chrono::minutes(30), 90, 70), Keep::kBesideWork);
  EXPECT_LT(behind_ms_, 10 * 500);
}

TEST_F(KeepTrialTest, NothingIsTriedWhereNothingIsSlow) {
  slow_ = false;
  EXPECT_EQ(after(Seconds(100), 70, 90), Keep::kBesideWork);
  EXPECT_EQ(behind_ms_, 0);
  slow_ = true;
  EXPECT_EQ(after(Seconds(2), 70, 90), Keep::kBehindWork);
}

TEST_F(KeepTrialTest, EqualIsBeside) { EXPECT_EQ(after(Seconds(3), 90, 91), Keep::kBesideWork); }

TEST_F(KeepTrialTest, FindsOutAnewWhenAProgramChanges) {
  EXPECT_EQ(after(Seconds(2), 90, 70), Keep::kBesideWork);
  EXPECT_EQ(after(Seconds(25), 70, 90), Keep::kBehindWork);
  EXPECT_EQ(after(std::chrono::milliseconds(1), 70, 90, false), Keep::kBesideWork) << "it has gaps now";
}

TEST_F(KeepTrialTest, AProgramWhoseWorkIsNotKnownIsKeptBesideIt) {
  EXPECT_EQ(after(Seconds(5), 0, 0), Keep::kBesideWork);
}

TEST_F(KeepTrialTest, ABreakIsNoPartOfATrial) {
  EXPECT_EQ(after(std::chrono::milliseconds(300), 70, 90), Keep::kBesideWork);
  now_ += Seconds(5);
  since_ = now_;
  EXPECT_EQ(after(std::chrono::milliseconds(1200), 70, 90), Keep::kBehindWork);
}

TEST_F(KeepTrialTest, WhoIsFarTooSlowBesideItIsBehindItAtOnce) {
  EXPECT_EQ(after(std::chrono::milliseconds(10), 40, 90), Keep::kBesideWork);
  EXPECT_TRUE(trial_.leave_side(now_));
  EXPECT_EQ(after(Seconds(5), 40, 90), Keep::kBehindWork);
  EXPECT_FALSE(trial_.leave_side(now_));
}

TEST_F(KeepGate, LongPausesAreForOthers) {
  step();
  clock_.pass(std::chrono::microseconds(1100));
  EXPECT_FALSE(device_.goes_on());
  device_.let_go();
  EXPECT_EQ(gate().rests, 1u);
  EXPECT_EQ(gate().begun, gate().ended);
  step();
  EXPECT_EQ(device_.keeps, 2) << "with the next work again";
}

TEST_F(KeepGate, WhileWorkIsOnTheEngineItIsNoPause) {
  EXPECT_TRUE(view_.enter(kCompute, 1));
  view_.pause();
  clock_.pass(std::chrono::milliseconds(90));
  EXPECT_TRUE(device_.goes_on());
  device_.finish_time_slice(kUnit);
}

// Its blocks may wait for one that finds no place beside the keep-alive.
TEST_F(KeepGate, WorkThatDoesNotEndIsLeftAlone) {
  for (int stall = 0; stall < 4; ++stall) {
    clock_.pass(std::chrono::seconds(1));
    EXPECT_TRUE(view_.enter(kCompute, 1));
    view_.pause();
    EXPECT_EQ(device_.keeps, std::min(stall + 1, 3));
    if (stall == 3) break;
    EXPECT_TRUE(device_.goes_on()) << "what was before it does not count";
    clock_.pass(std::chrono::milliseconds(101));
    EXPECT_FALSE(device_.goes_on());
    device_.let_go();
    device_.finish_time_slice(kUnit);
  }
}

// The keep-alive takes the place of a block, which then runs after the others.
TEST_F(KeepGate, WhoseKernelsTakeLongerBesideTheKeepAliveIsNotKeptAgain) {
  constexpr uint64_t kLong = 10 * kUnit;
  learn(kLong);
  for (int i = 0; i < 200; ++i) launch(i % 2 ? kLong : kLong + kLong / 10);
  for (int i = 0; i < 200; ++i) launch(200 * kLong);  // others had the engine meanwhile
  EXPECT_EQ(device_.keeps, 1);
  EXPECT_TRUE(device_.goes_on());
  for (int i = 0; i < 60; ++i) launch(2 * kLong);
  EXPECT_FALSE(device_.goes_on());
  device_.let_go();
  launch(2 * kLong);
  EXPECT_EQ(device_.keeps, 1);
}

// With their pauses, however long they take now.
TEST_F(KeepGate, WhatItsStepsTakeAloneIsTold) {
  const auto steps = [this](int count, uint64_t wall_ns) {
    for (int i = 0; i < count; ++i) {
      launch(kUnit);
      clock_.pass(std::chrono::nanoseconds(wall_ns));
    }
  };
  learn(kUnit);
  clock_.pass(std::chrono::nanoseconds(2 * kUnit));
  device_.over = true;  // when the next step begins
  grant_page_->keep_engine = 0;
  gate().no_waiters = 1;
  steps(50, 2 * kUnit);
  gate().no_waiters = 0;
  grant_page_->keep_engine = 1;
  const auto told = [this] { return static_cast<double>(gate().steps_ns); };
  steps(2, 2 * kUnit);
  EXPECT_NEAR(told(), 2 * kUnit, kMicrosecond) << "the last is not over";
  steps(10, 2 * kUnit + kUnit / 10);
  EXPECT_NEAR(told(), 22 * kUnit, kMicrosecond);
  steps(1, 100 * kUnit);  // others had the engine meanwhile
  steps(8, 2 * kUnit - kUnit / 10);
  EXPECT_NEAR(told(), 40 * kUnit, kMicrosecond);
}

// Its time slices follow each other without a rest: each waits for the one before, as far as the gate has seen.
TEST_F(KeepGate, StepsAloneAreKnownThoughTheirPausesAreShort) {
  learn(kUnit);
  device_.over = true;
  grant_page_->keep_engine = 0;
  gate().no_waiters = 1;
  for (int i = 0; i < 500; ++i) {
    EXPECT_TRUE(view_.enter_launch({.shape = 1, .exact = 2, .stream = 3}));
    view_.launched(true);
    clock_.pass(std::chrono::nanoseconds(3 * kUnit / 2));
    while (device_.ended.size() > 1) device_.finish_time_slice(kUnit);
  }
  gate().no_waiters = 0;
  grant_page_->keep_engine = 1;
  for (int i = 0; i < 3; ++i) launch(kUnit);
  EXPECT_NEAR(static_cast<double>(gate().steps_ns), 3.0 * kUnit, kMicrosecond);
}

// By itself a program waits twice a step, and nothing closes its time slice. Beside others each wait ends a step.
TEST_F(KeepGate, StepsAloneEndWithEachWaitToo) {
  learn(kUnit);
  grant_page_->keep_engine = 0;
  gate().no_waiters = 1;
  const auto work = [this](int launches, uint64_t takes_ns) {
    for (int i = 0; i < launches; ++i) {
      device_.over = i == 0;
      EXPECT_TRUE(view_.enter_launch({.shape = 1, .exact = 2, .stream = 3}));
    }
    view_.rest();
    while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
    clock_.pass(std::chrono::nanoseconds(takes_ns));
  };
  for (int i = 0; i < 500; ++i) {
    work(2, 24 * kUnit / 10);
    work(1, 8 * kUnit / 10);
  }
  view_.pause();
  gate().no_waiters = 0;
  grant_page_->keep_engine = 1;
  const auto told = [&](int launches) {
    const uint64_t before = gate().steps_ns;
    work(launches, 10 * kUnit);  // what the one before takes is told
    return static_cast<double>(gate().steps_ns - before);
  };
  for (int i = 0; i < 3; ++i) (void)told(1);
  EXPECT_NEAR(told(2), 0.8 * kUnit, kMicrosecond);
  EXPECT_NEAR(told(1), 2.4 * kUnit, kMicrosecond);
}

TEST_F(KeepGate, WhoLosesLessByItThanSwitchesWouldTakeIsKept) {
  learn(kUnit);
  for (int i = 0; i < 200; ++i) launch(2 * kUnit);
  EXPECT_EQ(device_.keeps, 1);
  EXPECT_TRUE(device_.goes_on());
}

TEST_F(KeepGate, EndsWhenTheArbiterSaysSoOrHasGone) {
  step();
  grant_page_->keep_engine = 0;
  EXPECT_FALSE(device_.goes_on());
  grant_page_->keep_engine = 1;
  gate().open = 0;
  EXPECT_FALSE(device_.goes_on());
  gate().open = kOpenWide;
  EXPECT_TRUE(device_.goes_on());
  grant_page_->no_arbiter = 1;
  EXPECT_FALSE(device_.goes_on());
}

TEST_F(KeepGate, ADeviceThatCannotIsAskedOnce) {
  device_.can_keep = false;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(device_.keeps, 1);
  EXPECT_EQ(gate().begun, gate().ended);
}

TEST_F(KeepGate, NothingIsKeptAtANarrowerGate) {
  gate().open = 1;
  step();
  EXPECT_EQ(device_.keeps, 0);
}

}  // namespace
}  // namespace bandsaw::runner
