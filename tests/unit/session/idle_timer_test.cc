// When a virtual GPU counts as idle, in virtual time.
#include "backend/session/idle_timer.h"

#include <gtest/gtest.h>

namespace bandsaw {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class IdleTimerTest : public ::testing::Test {
 protected:
  void after(milliseconds time) { now_ += time; }

  IdleTimer timer_;
  IdleTimer::Time now_{};
};

TEST_F(IdleTimerTest, IsIdleOnceNothingWasDoneForSoLong) {
  timer_.set_after(seconds(10));
  timer_.begin(now_);
  timer_.note(now_, 5, false);
  after(seconds(9));
  timer_.note(now_, 5, false);
  EXPECT_FALSE(timer_.idle(now_));
  after(seconds(1));
  timer_.note(now_, 5, false);
  EXPECT_TRUE(timer_.idle(now_));
}

TEST_F(IdleTimerTest, EachCallBeginsAnew) {
  timer_.set_after(seconds(10));
  for (uint64_t call = 0; call < 5; ++call) {
    timer_.note(now_, call, false);
    after(seconds(9));
    EXPECT_FALSE(timer_.idle(now_)) << call;
  }
  after(seconds(1));
  EXPECT_TRUE(timer_.idle(now_));
}

TEST_F(IdleTimerTest, WhoWaitsForTheDeviceIsNotIdle) {
  timer_.set_after(seconds(10));
  timer_.note(now_, 5, false);
  for (int i = 0; i < 5; ++i) {
    after(seconds(9));
    timer_.note(now_, 5, true);
    EXPECT_FALSE(timer_.idle(now_));
  }
  after(seconds(10));
  timer_.note(now_, 5, false);
  EXPECT_TRUE(timer_.idle(now_));
}

TEST_F(IdleTimerTest, NeverWithoutATime) {
  timer_.begin(now_);
  after(seconds(1'000'000));
  EXPECT_FALSE(timer_.idle(now_) || timer_.wanted());
  timer_.set_after(seconds(1));
  EXPECT_TRUE(timer_.idle(now_));
}

TEST_F(IdleTimerTest, NotBeforeItWasSeen) {
  timer_.set_after(seconds(1));
  now_ += seconds(100);
  EXPECT_FALSE(timer_.idle(now_));
}

TEST_F(IdleTimerTest, IsLookedAtAsOftenAsNeeded) {
  timer_.set_after(milliseconds(1000));
  EXPECT_EQ(timer_.period(), milliseconds(250));
  timer_.set_after(milliseconds(1));
  EXPECT_EQ(timer_.period(), milliseconds(50));
  timer_.set_after(seconds(86'400));
  EXPECT_EQ(timer_.period(), seconds(15));
}

}  // namespace
}  // namespace bandsaw
