// What a session does with its runners to suspend a virtual GPU, and when something of that fails.
#include "backend/session/suspension.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "backend/control/event_ptr.h"
#include "tests/unit/session/fake_checkpointer.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr auto kStandstill = RunnerMessageType::kStandstill, kMove = RunnerMessageType::kMoveMemory,
               kGoOn = RunnerMessageType::kGoOn;

class SuspensionTest : public ::testing::Test {
 protected:
  SuspensionTest() {
    for (auto& runner : runners_) living_.push_back(&runner);
    runners_[1].process = 4712;
    make(nullptr);
  }
  void make(Checkpointer* checkpointer) {
    suspension_ =
        std::make_unique<Suspension>(base_.get(), Suspension::Session{.runners = [this] { return living_; },
                                                                      .hold = [this](bool held) { held_ = held; },
                                                                      .check = [this] { return refusal_; },
                                                                      .on_device = [] { return uint64_t{1000}; },
                                                                      .changed = [this] { ++changes_; },
                                                                      .first_pause = std::chrono::milliseconds(10),
                                                                      .checkpointer = checkpointer});
  }
  void suspend_with_contexts() {
    make(&checkpointer_);
    suspension_->want(Suspension::Want::kSuspend);
    answer(kStandstill);
    answer(kMove);
    carried_out(0, 0);
    ASSERT_EQ(state(), "suspended");
  }
  // All runners' contexts were to leave or to come back; this has become of it.
  void carried_out(int first, int second) {
    auto orders = std::exchange(checkpointer_.orders, {});
    ASSERT_EQ(orders.size(), 2u);
    orders[0].done(first);
    orders[1].done(second);
  }
  std::string state() const { return suspension_->describe()["state"]; }
  std::string error() const { return suspension_->describe()["error"]; }
  // All runners were told this last; they answer with these errors.
  void answer(RunnerMessageType type, int first = 0, int second = 0) {
    for (FakeRunner& runner : runners_) {
      ASSERT_FALSE(runner.messages.empty());
      ASSERT_EQ(runner.last().message.type, type) << state();
    }
    // What they are told because of an answer is not answered yet.
    Runner::Done of_first = std::exchange(runners_[0].messages.back().done, nullptr);
    Runner::Done of_second = std::exchange(runners_[1].messages.back().done, nullptr);
    of_first(first);
    of_first = nullptr;
    of_second(second);
    of_second = nullptr;
  }

  BasePtr base_{event_base_new()};
  FakeCheckpointer checkpointer_;
  FakeRunner runners_[2];
  std::vector<Runner*> living_;
  // It has slept, and nothing has called.
  void fall_asleep() {
    ASSERT_TRUE(suspension_->sleep(1000).ok());
    answer(kStandstill);
    answer(kMove);
    ASSERT_TRUE(suspension_->asleep());
  }
  void loop_for(std::chrono::milliseconds time) {
    const timeval wait = to_timeval(time);
    event_base_loopexit(base_.get(), &wait);
    event_base_dispatch(base_.get());
  }

  bool held_ = false;
  int changes_ = 0;
  Status refusal_;
  std::unique_ptr<Suspension> suspension_;
};

TEST_F(SuspensionTest, ThereAndBack) {
  suspension_->want(Suspension::Want::kPause);
  EXPECT_EQ(state(), "pausing");
  EXPECT_TRUE(held_);
  answer(kStandstill);
  EXPECT_EQ(state(), "paused");
  EXPECT_EQ(suspension_->describe()["bytes"], 1000);
  suspension_->want(Suspension::Want::kSuspend);
  EXPECT_EQ(runners_[0].last().message.flags, 0u);
  answer(kMove);
  EXPECT_EQ(state(), "suspended");
  EXPECT_TRUE(suspension_->suspended());
  suspension_->want(Suspension::Want::kRun);
  EXPECT_EQ(runners_[0].last().message.flags, kToDevice);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_FALSE(held_);
  EXPECT_EQ(error(), "");
}

TEST_F(SuspensionTest, WithoutRunnersItIsThereAtOnce) {
  living_.clear();
  ASSERT_TRUE(suspension_->want("suspend").ok());
  EXPECT_EQ(state(), "suspended");
  ASSERT_TRUE(suspension_->want("run").ok());
  EXPECT_EQ(state(), "running");
  EXPECT_EQ(suspension_->want("stop").code(), EINVAL);
}

TEST_F(SuspensionTest, WhatIsSharedIsRefusedBeforeAnythingIsTouched) {
  refusal_ = Status::error(EBUSY, "it is shared");
  suspension_->want(Suspension::Want::kPause);
  EXPECT_EQ(state(), "running");
  EXPECT_EQ(error(), "it is shared");
  EXPECT_TRUE(runners_[0].messages.empty());
  suspension_->want(Suspension::Want::kRun);
  EXPECT_EQ(error(), "");
}

TEST_F(SuspensionTest, WorkThatDoesNotEndLetsAllGoOn) {
  suspension_->want(Suspension::Want::kPause);
  answer(kStandstill, 0, EBUSY);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_NE(error().find("did not end"), std::string::npos);
  suspension_->want(Suspension::Want::kPause);  // said again
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, WhereOneHasNoRoomAllReturn) {
  suspension_->want(Suspension::Want::kSuspend);
  answer(kStandstill);
  answer(kMove, 0, ENOMEM);
  EXPECT_EQ(state(), "returning");
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_NE(error(), "");
}

TEST_F(SuspensionTest, WhereOneCannotReturnAllStay) {
  suspension_->want(Suspension::Want::kSuspend);
  answer(kStandstill);
  answer(kMove);
  suspension_->want(Suspension::Want::kRun);
  answer(kMove, ENOMEM, 0);
  EXPECT_EQ(state(), "leaving");
  answer(kMove);
  EXPECT_EQ(state(), "suspended");
  EXPECT_NE(error(), "");
  EXPECT_FALSE(runners_[0].killed);
}

TEST_F(SuspensionTest, WhatCanNeitherLeaveNorReturnIsEnded) {
  suspension_->want(Suspension::Want::kSuspend);
  answer(kStandstill);
  answer(kMove, EIO, 0);
  answer(kMove, EIO, 0);
  EXPECT_TRUE(runners_[0].killed);
  EXPECT_FALSE(runners_[1].killed);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, ARunnerThatDiesInTheMiddleIsNoError) {
  suspension_->want(Suspension::Want::kSuspend);
  answer(kStandstill);
  living_.pop_back();
  runners_[1].die();
  runners_[0].answer_all();
  EXPECT_EQ(state(), "suspended");
  EXPECT_EQ(error(), "");
}

TEST_F(SuspensionTest, WhoChangesHisMindInTheMiddle) {
  suspension_->want(Suspension::Want::kSuspend);
  suspension_->want(Suspension::Want::kRun);
  answer(kStandstill);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, ContextsLeaveLastAndReturnFirst) {
  suspend_with_contexts();
  EXPECT_TRUE(runners_[0].are_off && runners_[1].are_off);
  suspension_->want(Suspension::Want::kRun);
  carried_out(0, 0);
  EXPECT_FALSE(runners_[0].are_off || runners_[1].are_off);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, ContextsStayWhereSomebodySavesThem) {
  make(&checkpointer_);
  suspension_->set_contexts_stay(true);
  suspension_->want(Suspension::Want::kSuspend);
  answer(kStandstill);
  answer(kMove);
  EXPECT_EQ(state(), "suspended");
  EXPECT_TRUE(checkpointer_.orders.empty());
  EXPECT_FALSE(runners_[0].are_off || runners_[1].are_off);
  suspension_->want(Suspension::Want::kRun);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, ARunnerThatEndsWhileItsContextsReturnIsNoError) {
  suspend_with_contexts();
  suspension_->want(Suspension::Want::kRun);
  runners_[1].stop(Runner::Stop::kAsk);
  carried_out(0, EIO);
  answer(kMove, 0, EPIPE);
  answer(kGoOn, 0, EPIPE);
  EXPECT_EQ(state(), "running");
  EXPECT_EQ(error(), "");
}

TEST_F(SuspensionTest, TheContextsOfARunnerThatEndsAreNotAskedFor) {
  suspend_with_contexts();
  runners_[1].stop(Runner::Stop::kAsk);
  suspension_->want(Suspension::Want::kRun);
  ASSERT_EQ(checkpointer_.orders.size(), 1u);
  EXPECT_EQ(checkpointer_.orders[0].runner, 4711);
}

TEST_F(SuspensionTest, WhereContextsCannotReturnItStaysSuspendedAndTriesAgain) {
  suspend_with_contexts();
  suspension_->want(Suspension::Want::kRun);
  carried_out(0, EIO);
  EXPECT_EQ(state(), "suspended");
  EXPECT_NE(error(), "");
  EXPECT_FALSE(suspension_->contexts_off());
  suspension_->want(Suspension::Want::kSuspend);
  ASSERT_EQ(checkpointer_.orders.size(), 1u) << "the other's had returned, and leave again";
  EXPECT_EQ(checkpointer_.orders[0].runner, 4711);
  EXPECT_TRUE(checkpointer_.orders[0].off);
  std::exchange(checkpointer_.orders, {})[0].done(0);
  EXPECT_EQ(state(), "suspended");
  EXPECT_TRUE(suspension_->contexts_off());
  suspension_->want(Suspension::Want::kRun);
  carried_out(0, 0);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, WhoIsToRunTriesAgainByItself) {
  suspend_with_contexts();
  suspension_->want(Suspension::Want::kRun);
  carried_out(0, EIO);
  EXPECT_EQ(state(), "suspended");
  EXPECT_TRUE(checkpointer_.orders.empty());
  loop_for(std::chrono::milliseconds(50));
  ASSERT_EQ(checkpointer_.orders.size(), 1u) << "the other's are back";
  EXPECT_EQ(checkpointer_.orders[0].runner, 4712);
  std::exchange(checkpointer_.orders, {})[0].done(0);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, WhoSleepsTriesAgainWithThoseThatAreNotBack) {
  make(&checkpointer_);
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  answer(kStandstill);
  answer(kMove);
  carried_out(0, 0);
  suspension_->call_waits();
  carried_out(0, EIO);
  EXPECT_EQ(state(), "suspended");
  suspension_->call_waits();
  ASSERT_EQ(checkpointer_.orders.size(), 1u);
  EXPECT_EQ(checkpointer_.orders[0].runner, 4712);
  EXPECT_FALSE(checkpointer_.orders[0].off);
}

TEST_F(SuspensionTest, SaysWhatEachStepOfItsReturnTook) {
  suspend_with_contexts();
  EXPECT_EQ(suspension_->describe()["return_us"]["driver"], 0);
  checkpointer_.took = std::chrono::milliseconds(254);
  suspension_->want(Suspension::Want::kRun);
  carried_out(0, 0);
  answer(kMove);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  answer(kGoOn);
  const auto took = suspension_->describe()["return_us"];
  EXPECT_EQ(took["driver"], 254'000);
  EXPECT_GE(took["going_on"], 2000);
  EXPECT_LT(took["contexts"], 2000);
}

TEST_F(SuspensionTest, SaysWhatEachStepOfItsLeavingTook) {
  checkpointer_.took = std::chrono::milliseconds(175);
  suspend_with_contexts();
  const auto took = suspension_->describe()["leave_us"];
  EXPECT_EQ(took["driver"], 175'000);
  EXPECT_LT(took["contexts"], 175'000) << "that is what the session has seen";
  EXPECT_TRUE(took.contains("at_rest") && took.contains("memory"));
}

TEST_F(SuspensionTest, SleepsUntilACallComes) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  EXPECT_EQ(runners_[0].last().message.flags, kIfIdle);
  EXPECT_FALSE(held_) << "a process that starts meanwhile gets the warm runner";
  EXPECT_TRUE(suspension_->sleeps());
  answer(kStandstill);
  EXPECT_TRUE(held_);
  answer(kMove);
  EXPECT_EQ(state(), "suspended");
  EXPECT_EQ(suspension_->describe()["asleep"], true);
  EXPECT_GT(suspension_->describe()["since"], 0);
  EXPECT_EQ(suspension_->sleep_bytes(), 1000u);
  EXPECT_EQ(changes_, 1);
  suspension_->call_waits();
  suspension_->call_waits();
  EXPECT_EQ(runners_[0].last().message.flags, kToDevice);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_FALSE(suspension_->sleeps() || held_);
  EXPECT_EQ(suspension_->describe()["asleep"], false);
  EXPECT_EQ(suspension_->describe()["since"], 0);
  EXPECT_EQ(changes_, 2);
}

TEST_F(SuspensionTest, ACallThatComesBeforeItRestsKeepsItAwake) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  answer(kStandstill, 0, EBUSY);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_EQ(error(), "") << "that is no error";
  EXPECT_FALSE(held_);
}

TEST_F(SuspensionTest, ACallThatComesWhileItLeavesBringsItBack) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  answer(kStandstill);
  suspension_->call_waits();
  answer(kMove);
  EXPECT_EQ(state(), "returning");
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, AProcessThatStartsWhileItComesToRestKeepsItAwake) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  suspension_->call_waits();
  answer(kStandstill);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
  EXPECT_FALSE(held_);
}

TEST_F(SuspensionTest, MoreThanWasGrantedStaysWhereItIs) {
  ASSERT_TRUE(suspension_->sleep(999).ok());
  answer(kStandstill);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, WhatIsSharedDoesNotSleep) {
  refusal_ = Status::error(EBUSY, "it is shared");
  EXPECT_EQ(suspension_->sleep(1000).code(), EBUSY);
  EXPECT_TRUE(runners_[0].messages.empty());
}

TEST_F(SuspensionTest, WhatVgpudWantsToStopDoesNotSleep) {
  suspension_->want(Suspension::Want::kPause);
  EXPECT_EQ(suspension_->sleep(1000).code(), EBUSY);
}

TEST_F(SuspensionTest, WhoSleepsIsSuspendedAtOnceAndStaysSo) {
  fall_asleep();
  suspension_->want(Suspension::Want::kPause);
  EXPECT_EQ(state(), "suspended") << "which is more than a pause";
  suspension_->want(Suspension::Want::kSuspend);
  suspension_->call_waits();
  EXPECT_EQ(state(), "suspended");
  EXPECT_EQ(suspension_->describe()["asleep"], false);
  EXPECT_EQ(suspension_->describe()["bytes"], 1000);
  suspension_->want(Suspension::Want::kRun);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, APauseThatComesMeanwhileBeginsAnew) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  suspension_->want(Suspension::Want::kPause);
  answer(kStandstill, EBUSY, 0);
  answer(kGoOn);
  EXPECT_EQ(state(), "pausing");
  EXPECT_EQ(runners_[0].last().message.flags, 0u);
  answer(kStandstill);
  EXPECT_EQ(state(), "paused");
  EXPECT_TRUE(held_);
}

TEST_F(SuspensionTest, APauseThatComesMeanwhileTakesOver) {
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  suspension_->want(Suspension::Want::kPause);
  answer(kStandstill);
  EXPECT_EQ(state(), "paused");
  EXPECT_TRUE(held_);
}

TEST_F(SuspensionTest, WhoCannotComeBackTriesAgainAtTheNextCallAndLater) {
  make(&checkpointer_);
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  answer(kStandstill);
  answer(kMove);
  carried_out(0, 0);
  ASSERT_TRUE(suspension_->asleep());
  suspension_->call_waits();
  carried_out(EIO, EIO);
  EXPECT_TRUE(suspension_->asleep());
  EXPECT_NE(error(), "");
  suspension_->call_waits();
  carried_out(EIO, EIO);
  EXPECT_TRUE(suspension_->asleep());
  EXPECT_TRUE(checkpointer_.orders.empty());
  loop_for(std::chrono::milliseconds(50));  // nobody else calls
  carried_out(0, 0);
  answer(kMove);
  answer(kGoOn);
  EXPECT_EQ(state(), "running");
}

TEST_F(SuspensionTest, ARunnerThatDiesWhileItSleepsIsNoError) {
  fall_asleep();
  living_.pop_back();
  runners_[1].die();
  suspension_->call_waits();
  runners_[0].answer_all();
  runners_[0].answer_all();
  EXPECT_EQ(state(), "running");
  EXPECT_EQ(error(), "");
}

TEST_F(SuspensionTest, WithoutProgramsItSleepsAndWakesAtOnce) {
  living_.clear();
  make(&checkpointer_);
  ASSERT_TRUE(suspension_->sleep(1000).ok());
  EXPECT_TRUE(suspension_->asleep() && held_);
  EXPECT_TRUE(checkpointer_.orders.empty());
  suspension_->call_waits();
  EXPECT_EQ(state(), "running");
  EXPECT_FALSE(held_);
}

}  // namespace
}  // namespace bandsaw
