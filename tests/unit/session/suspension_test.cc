// What a session does with its runners to suspend a virtual GPU, and when something of that fails.
#include "backend/session/suspension.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backend/control/event_ptr.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

class SuspensionTest : public ::testing::Test {
 protected:
  SuspensionTest() {
    for (auto& runner : runners_) living_.push_back(&runner);
    suspension_ =
        std::make_unique<Suspension>(base_.get(), Suspension::Session{.runners = [this] { return living_; },
                                                                      .hold = [this](bool held) { held_ = held; },
                                                                      .check = [this] { return refusal_; },
                                                                      .on_device = [] { return uint64_t{1000}; }});
  }
  std::string state() const { return suspension_->describe()["state"]; }
  std::string error() const { return suspension_->describe()["error"]; }
  // All runners were told this last; they answer with these errors.
  void answer(RunnerMessageType type, int first = 0, int second = 0) {
    for (FakeRunner& runner : runners_) {
      ASSERT_FALSE(runner.messages.empty());
      ASSERT_EQ(runner.last().message.type, type) << state();
    }
    runners_[0].answer_all(first);
    runners_[1].answer_all(second);
  }

  BasePtr base_{event_base_new()};
  FakeRunner runners_[2];
  std::vector<Runner*> living_;
  bool held_ = false;
  Status refusal_;
  std::unique_ptr<Suspension> suspension_;
};

constexpr auto kStandstill = RunnerMessageType::kStandstill, kMove = RunnerMessageType::kMoveMemory,
               kGoOn = RunnerMessageType::kGoOn;

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

}  // namespace
}  // namespace bandsaw
