// What a session does with its runners when programs checkpoint each other, and when something of that fails.
#include "backend/session/process_checkpoints.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/session/fake_checkpointer.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr auto kStandstill = RunnerMessageType::kStandstill, kMove = RunnerMessageType::kMoveMemory,
               kGoOn = RunnerMessageType::kGoOn, kExchanged = RunnerMessageType::kExchanged;
constexpr uint64_t kShare = 1000, kBytes = 600;
constexpr uint32_t kPid = 77, kUser = 1000, kOtherUser = 1001;

class ProcessCheckpointsTest : public ::testing::Test {
 protected:
  ProcessCheckpointsTest() {
    serve(&asker_, 1, kUser);
    serve(&target_, kPid, kUser);
    living_ = {&asker_, &target_};
    EXPECT_TRUE(page_.charge(target_.served().slot, kBytes));
    make(nullptr);
  }
  void serve(FakeRunner* runner, uint32_t pid, uint32_t user, GuestOwner::Kind kind = GuestOwner::Kind::kUser) {
    runner->set_served({{kind, user}, pid, user, page_.take_slot()});
  }
  void make(Checkpointer* checkpointer) {
    checkpoints_ = std::make_unique<ProcessCheckpoints>(
        base_.get(), ProcessCheckpoints::Session{.runners = [this] { return living_; },
                                                 .check = [this](const Runner&) { return refusal_; },
                                                 .changed = [this] { ++changes_; },
                                                 .usage_page = &page_,
                                                 .checkpointer = checkpointer,
                                                 .room_timeout = std::chrono::milliseconds(1)});
  }
  void ask(uint32_t action, uint32_t pid = kPid, FakeRunner* asker = nullptr) {
    RunnerMessage message{.type = RunnerMessageType::kCheckpoint, .id = ++asked_, .flags = action, .value = pid};
    checkpoints_->request(asker ? asker : &asker_, message);
  }
  // What the last request was answered with; -1: nothing yet.
  int answered(FakeRunner* asker = nullptr) {
    for (const auto& sent : (asker ? asker : &asker_)->messages) {
      if (sent.message.type == kExchanged && sent.message.id == asked_) return static_cast<int>(sent.message.value);
    }
    return -1;
  }
  uint64_t state() {
    ask(VGPU_CHECKPOINT_STATE);
    EXPECT_EQ(answered(), 0);
    return asker_.last().message.bytes;
  }
  void told(RunnerMessageType type, int error = 0) {
    ASSERT_FALSE(target_.messages.empty());
    ASSERT_EQ(target_.last().message.type, type);
    const auto done = std::exchange(target_.messages.back().done, nullptr);
    done(error);
  }
  void lock() {
    ask(VGPU_CHECKPOINT_LOCK);
    told(kStandstill);
    ASSERT_EQ(answered(), 0);
  }
  void checkpoint() {
    lock();
    ask(VGPU_CHECKPOINT_SAVE);
    checkpoints_->give_room(kBytes);
    told(kMove);
  }

  BasePtr base_{event_base_new()};
  UsagePageOwner page_ = std::move(UsagePageOwner::open(kShare).value());
  FakeCheckpointer checkpointer_;
  FakeRunner asker_, target_, third_;
  std::vector<Runner*> living_;
  Status refusal_;
  int changes_ = 0;
  uint32_t asked_ = 0;
  std::unique_ptr<ProcessCheckpoints> checkpoints_;
};

TEST_F(ProcessCheckpointsTest, ThereAndBack) {
  EXPECT_EQ(state(), VGPU_PROCESS_RUNNING);
  lock();
  EXPECT_EQ(state(), VGPU_PROCESS_LOCKED);
  EXPECT_NE(checkpoints_->locked().find("77"), std::string::npos);
  ask(VGPU_CHECKPOINT_SAVE);
  EXPECT_TRUE(checkpoints_->wants_room());
  EXPECT_EQ(checkpoints_->bytes(), kBytes);
  EXPECT_EQ(answered(), -1) << "nothing moves before there is room";
  checkpoints_->give_room(kBytes);
  EXPECT_EQ(target_.last().message.flags, 0u);
  told(kMove);
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(state(), VGPU_PROCESS_CHECKPOINTED);
  EXPECT_EQ(page_.memory_used(), 0);
  ask(VGPU_CHECKPOINT_RESTORE);
  EXPECT_EQ(page_.memory_used(), static_cast<int64_t>(kBytes)) << "its room is taken before it moves";
  EXPECT_EQ(target_.last().message.flags, kToDevice);
  told(kMove);
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(checkpoints_->bytes(), 0u);
  ask(VGPU_CHECKPOINT_UNLOCK);
  told(kGoOn);
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(state(), VGPU_PROCESS_RUNNING);
  EXPECT_EQ(checkpoints_->locked(), "");
}

TEST_F(ProcessCheckpointsTest, WhoMayAskWhom) {
  ask(VGPU_CHECKPOINT_LOCK, 78);
  EXPECT_EQ(answered(), ESRCH);
  ask(VGPU_CHECKPOINT_LOCK, 1);
  EXPECT_EQ(answered(), ENOTSUP) << "itself";
  serve(&third_, 3, kOtherUser);
  living_.push_back(&third_);
  ask(VGPU_CHECKPOINT_LOCK, kPid, &third_);
  EXPECT_EQ(answered(&third_), EPERM);
  ask(VGPU_CHECKPOINT_STATE, kPid, &third_);
  EXPECT_EQ(answered(&third_), EPERM);
  serve(&third_, 3, 0);
  ask(VGPU_CHECKPOINT_LOCK, kPid, &third_);
  EXPECT_EQ(target_.last().message.type, kStandstill) << "root may";
  serve(&third_, 3, kUser, GuestOwner::Kind::kVm);
  ask(VGPU_CHECKPOINT_STATE, kPid, &third_);
  EXPECT_EQ(answered(&third_), ESRCH) << "numbers of another kernel";
  ask(6);
  EXPECT_EQ(answered(), EINVAL);
}

TEST_F(ProcessCheckpointsTest, EachStepHasItsState) {
  for (const uint32_t action : {VGPU_CHECKPOINT_SAVE, VGPU_CHECKPOINT_RESTORE, VGPU_CHECKPOINT_UNLOCK}) {
    ask(action);
    EXPECT_EQ(answered(), EPROTO) << action;
  }
  ask(VGPU_CHECKPOINT_LOCK);
  for (const uint32_t action : {VGPU_CHECKPOINT_LOCK, VGPU_CHECKPOINT_SAVE, VGPU_CHECKPOINT_UNLOCK}) {
    ask(action);
    EXPECT_EQ(answered(), EPROTO) << action << " while it is being locked";
  }
}

TEST_F(ProcessCheckpointsTest, ALockThatFailsLeavesItRunning) {
  refusal_ = Status::error(ENOTSUP, "it is shared");
  ask(VGPU_CHECKPOINT_LOCK);
  EXPECT_EQ(answered(), ENOTSUP);
  EXPECT_TRUE(target_.messages.empty());
  refusal_ = {};
  ask(VGPU_CHECKPOINT_LOCK);
  told(kStandstill, EBUSY);
  EXPECT_EQ(answered(), EBUSY);
  EXPECT_EQ(state(), VGPU_PROCESS_RUNNING);
  lock();
  refusal_ = Status::error(ENOTSUP, "its last work has shared something");
  ask(VGPU_CHECKPOINT_SAVE);
  EXPECT_EQ(answered(), ENOTSUP);
  EXPECT_EQ(state(), VGPU_PROCESS_LOCKED);
}

TEST_F(ProcessCheckpointsTest, WithoutRoomNothingMoves) {
  lock();
  ask(VGPU_CHECKPOINT_SAVE);
  checkpoints_->give_room(kBytes - 1);
  EXPECT_EQ(answered(), ENOMEM);
  EXPECT_EQ(target_.last().message.type, kStandstill);
  EXPECT_EQ(checkpoints_->bytes(), 0u);
  ask(VGPU_CHECKPOINT_SAVE);
  event_base_dispatch(base_.get());  // vgpud says nothing
  EXPECT_EQ(answered(), ENOMEM);
  EXPECT_EQ(state(), VGPU_PROCESS_LOCKED);
}

// Else one virtual GPU would fill the host's memory, checkpoint by checkpoint.
TEST_F(ProcessCheckpointsTest, NoMoreThanTheShareLiesInTheHostsMemory) {
  checkpoint();
  serve(&third_, 3, kUser);
  living_.push_back(&third_);
  ASSERT_TRUE(page_.charge(third_.served().slot, kBytes));
  ask(VGPU_CHECKPOINT_LOCK, 3);
  third_.answer_all();
  ask(VGPU_CHECKPOINT_SAVE, 3);
  EXPECT_EQ(answered(), ENOMEM);
}

TEST_F(ProcessCheckpointsTest, WhereItsRoomIsTakenItStaysAway) {
  checkpoint();
  ASSERT_TRUE(page_.charge(asker_.served().slot, kShare - kBytes + 1));
  ask(VGPU_CHECKPOINT_RESTORE);
  EXPECT_EQ(answered(), ENOMEM);
  EXPECT_EQ(state(), VGPU_PROCESS_CHECKPOINTED);
  page_.uncharge(asker_.served().slot, 1);
  ask(VGPU_CHECKPOINT_RESTORE);
  told(kMove, ENOMEM);
  EXPECT_EQ(answered(), ENOMEM);
  EXPECT_EQ(page_.memory_used(), static_cast<int64_t>(kShare - kBytes)) << "it is charged for what is not there";
}

TEST_F(ProcessCheckpointsTest, ContextsLeaveAfterMemoryAndReturnBeforeIt) {
  make(&checkpointer_);
  checkpoint();
  EXPECT_EQ(answered(), -1);
  ASSERT_EQ(checkpointer_.orders.size(), 1u);
  EXPECT_TRUE(checkpointer_.orders[0].off && target_.are_off);
  std::exchange(checkpointer_.orders, {})[0].done(0);
  EXPECT_EQ(answered(), 0);
  ask(VGPU_CHECKPOINT_RESTORE);
  EXPECT_EQ(target_.last().message.flags, 0u) << "memory before its context";
  std::exchange(checkpointer_.orders, {})[0].done(EIO);
  EXPECT_EQ(answered(), EIO);
  EXPECT_EQ(page_.memory_used(), 0);
  ask(VGPU_CHECKPOINT_RESTORE);
  std::exchange(checkpointer_.orders, {})[0].done(0);
  EXPECT_FALSE(target_.are_off);
  told(kMove);
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessCheckpointsTest, AContextThatStaysIsNoError) {
  make(&checkpointer_);
  checkpoint();
  std::exchange(checkpointer_.orders, {})[0].done(ENOTSUP);
  EXPECT_EQ(answered(), 0);
  EXPECT_FALSE(target_.are_off);
  ask(VGPU_CHECKPOINT_RESTORE);
  told(kMove);
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessCheckpointsTest, WhoeverEndsInTheMiddleIsForgotten) {
  ask(VGPU_CHECKPOINT_LOCK);
  living_ = {&asker_};
  checkpoints_->drop(&target_);
  EXPECT_EQ(answered(), ESRCH);
  target_.die();  // its answer comes after
  EXPECT_EQ(checkpoints_->locked(), "");
  living_ = {&asker_, &target_};
  ask(VGPU_CHECKPOINT_LOCK);
  checkpoints_->drop(&asker_);
  const size_t said = asker_.messages.size();
  told(kStandstill);
  EXPECT_EQ(asker_.messages.size(), said) << "nobody is there to be told";
  EXPECT_NE(checkpoints_->locked(), "");
}

}  // namespace
}  // namespace bandsaw
