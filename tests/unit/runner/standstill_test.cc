// A process that comes to rest so that its memory can leave the device, in virtual time.
#include "backend/runner/standstill.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "tests/unit/runner/fake_device.h"
#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

using std::chrono::milliseconds;

class BusyDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  void settle(Done done) override { waiting.push_back(std::move(done)); }
  void finish() {
    for (const Done& done : std::exchange(waiting, {})) done(CUDA_SUCCESS);
  }
  std::vector<Done> waiting;
};

class StandstillTest : public testing::Test {
 protected:
  StandstillTest() { standstill_.set_device(&device_); }
  void begin(milliseconds timeout = milliseconds(1000)) {
    standstill_.begin(timeout, [this](int error) { answer_ = error; });
  }
  void begin_if_idle() {
    standstill_.begin(milliseconds(200), [this](int error) { answer_ = error; }, true);
  }
  // As the record loop does, for so long.
  void run(milliseconds time, bool busy = false) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(1)) {
      standstill_.advance(busy);
      clock_.pass(milliseconds(1));
    }
  }
  bool admits(std::optional<Engine> engine, wire::Order order = wire::Order::kNone) {
    wire::CallInfo info{};
    info.engine = engine;
    info.order = order;
    wire::CheckedRecord record{};
    record.info = &info;
    return standstill_.admits(record);
  }
  void issue() {
    wire::CallInfo info{};
    info.engine = Engine::kCompute;
    wire::CheckedRecord record{};
    record.info = &info;
    standstill_.issued(record);
  }

  BusyDevice device_{0x7e0000000000, nullptr};
  TestClock clock_;
  GateView gate_{&clock_};
  Standstill standstill_{&gate_, &clock_};
  std::optional<int> answer_;
};

TEST_F(StandstillTest, RestsWhenWorkHasEnded) {
  EXPECT_FALSE(standstill_.advance(false));
  EXPECT_TRUE(admits(Engine::kCompute));
  begin();
  run(milliseconds(3));
  EXPECT_FALSE(admits(Engine::kCompute));
  EXPECT_FALSE(admits(std::nullopt, wire::Order::kStream)) << "it may wait for what is held back";
  EXPECT_TRUE(admits(std::nullopt)) << "other threads may wait for it";
  EXPECT_FALSE(standstill_.at_rest());
  device_.finish();
  run(milliseconds(2));
  EXPECT_TRUE(standstill_.at_rest());
  EXPECT_EQ(answer_, 0);
  EXPECT_FALSE(admits(std::nullopt));
  standstill_.end();
  EXPECT_TRUE(standstill_.advance(false));
  EXPECT_TRUE(admits(Engine::kCompute));
  EXPECT_FALSE(standstill_.at_rest());
}

TEST_F(StandstillTest, WaitsForWhatIsStillToBeIssued) {
  begin();
  run(milliseconds(50), true);
  EXPECT_TRUE(device_.waiting.empty());
  run(milliseconds(2));
  EXPECT_EQ(device_.waiting.size(), 1u);
}

TEST_F(StandstillTest, WorkThatCameMeanwhileIsWaitedForToo) {
  begin();
  run(milliseconds(3));
  issue();
  device_.finish();
  run(milliseconds(2));
  EXPECT_FALSE(standstill_.at_rest());
  run(milliseconds(2));
  device_.finish();
  run(milliseconds(2));
  EXPECT_TRUE(standstill_.at_rest());
}

TEST_F(StandstillTest, WorkThatNeedsLaterRecordsGetsThem) {
  begin();
  run(milliseconds(251));
  run(milliseconds(2));
  EXPECT_TRUE(admits(Engine::kCompute)) << "held back for too long";
  run(milliseconds(30));
  EXPECT_FALSE(admits(Engine::kCompute)) << "and again";
  device_.finish();
  run(milliseconds(2));
  device_.finish();
  run(milliseconds(2));
  EXPECT_EQ(answer_, 0);
}

TEST_F(StandstillTest, WorkThatNeverEndsIsLeftAlone) {
  begin(milliseconds(1000));
  run(milliseconds(1300));
  EXPECT_EQ(answer_, EBUSY);
  EXPECT_FALSE(standstill_.wanted());
  EXPECT_TRUE(admits(Engine::kCompute));
}

TEST_F(StandstillTest, EndsBeforeItRests) {
  begin();
  run(milliseconds(3));
  standstill_.end();
  EXPECT_EQ(answer_, ECANCELED);
  run(milliseconds(1));
  EXPECT_TRUE(admits(Engine::kCompute));
}

TEST_F(StandstillTest, TheNextOneIsNotTakenForTheLast) {
  begin();
  run(milliseconds(2));
  device_.finish();
  run(milliseconds(2));
  ASSERT_EQ(answer_, 0);
  answer_.reset();
  standstill_.end();
  begin();  // before the record loop has looked
  run(milliseconds(2));
  EXPECT_FALSE(answer_);
  device_.finish();
  run(milliseconds(2));
  EXPECT_EQ(answer_, 0);
}

TEST_F(StandstillTest, OfWhatIsIdleOneRecordEndsIt) {
  begin_if_idle();
  run(milliseconds(3));
  EXPECT_FALSE(answer_);
  issue();
  EXPECT_TRUE(standstill_.advance(false));
  EXPECT_EQ(answer_, EBUSY);
  EXPECT_TRUE(admits(Engine::kCompute));
}

TEST_F(StandstillTest, OfWhatIsIdleOneThatWaitsEndsItToo) {
  begin_if_idle();
  standstill_.advance(false, true);
  EXPECT_TRUE(standstill_.advance(false, true));
  EXPECT_EQ(answer_, EBUSY);
}

TEST_F(StandstillTest, WhatIsIdleRests) {
  issue();  // long ago
  begin_if_idle();
  run(milliseconds(3));
  device_.finish();
  run(milliseconds(2));
  EXPECT_EQ(answer_, 0);
  EXPECT_TRUE(standstill_.at_rest());
}

TEST_F(StandstillTest, WhatTheDeviceStillHasIsNotIdle) {
  begin_if_idle();
  run(milliseconds(210));
  EXPECT_EQ(answer_, EBUSY);
}

}  // namespace
}  // namespace bandsaw::runner
