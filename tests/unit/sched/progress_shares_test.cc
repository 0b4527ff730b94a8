// Progress shares in virtual time: what each virtual GPU did in a period is given, and who may run is asked.
#include "vgpu-sched/policy/progress_shares.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace bandsaw::sched {
namespace {

constexpr Time kTick = 3 * kMillisecond;

class ProgressSharesTest : public testing::Test {
 protected:
  using Work = ProgressShares::Work;

  void add(VgpuId vgpu, int percent, int cap = 100) {
    shares_->set(vgpu, {.percent = percent, .reservation = 0, .cap = cap, .priority = 0});
    shares_->wake(vgpu, now_);
  }
  // Each works at this part of its speed alone, where it may run.
  void run_for(Time time, const std::map<VgpuId, double>& speeds, bool familiar = true) {
    for (const Time until = now_ + time; now_ < until;) {
      std::vector<Work> work;
      for (const auto& [vgpu, speed] : speeds) {
        const Time did = shares_->may_run(vgpu) ? static_cast<Time>(speed * kTick) : 0;
        work.push_back({.vgpu = vgpu, .wants = true, .worked = did, .used = did, .familiar = familiar});
        done_[vgpu] += did;
        held_[vgpu] += shares_->may_run(vgpu) ? 0 : kTick;
      }
      now_ += kTick;
      shares_->advance(now_, work);
    }
  }

  Time now_ = kSecond;
  std::unique_ptr<ProgressShares> shares_ = std::make_unique<ProgressShares>();
  std::map<VgpuId, Time> done_, held_;
};

TEST_F(ProgressSharesTest, NobodyWaitsWhileNobodyLacksAnything) {
  add(1, 75), add(2, 25);
  run_for(2 * kSecond, {{1, 0.94}, {2, 0.4}});
  EXPECT_EQ(held_[1], 0);
  EXPECT_EQ(held_[2], 0);
}

// The second one has the device as soon as it runs; while it does not, the first one has all of it.
TEST_F(ProgressSharesTest, WhoLacksHasTheOthersWait) {
  for (const int percent : {50, 75, 90}) {
    shares_ = std::make_unique<ProgressShares>();
    done_.clear();
    add(1, percent), add(2, 100 - percent);
    const Time start = now_;
    while (now_ - start < 10 * kSecond) {
      const bool beside = shares_->may_run(2);
      run_for(kTick, {{1, beside ? 0.02 : 1}, {2, 1}});
    }
    EXPECT_NEAR(static_cast<double>(done_[1]) / (10 * kSecond), percent / 100.0, 0.02);
    EXPECT_NEAR(static_cast<double>(done_[2]) / (10 * kSecond), 1 - percent / 100.0, 0.02);
  }
}

TEST_F(ProgressSharesTest, AGapBetweenTwoStepsLetsNobodyIn) {
  add(1, 75), add(2, 25);
  run_for(100 * kMillisecond, {{1, 0.0}, {2, 1}});
  ASSERT_FALSE(shares_->may_run(2)) << "the first one lacks something";
  now_ += kTick;
  shares_->advance(now_, std::vector<Work>{{.vgpu = 1, .wants = false, .worked = kTick, .familiar = true},
                                           {.vgpu = 2, .wants = true, .familiar = true}});
  EXPECT_FALSE(shares_->may_run(2));
  for (int i = 0; i < 20; ++i) {
    now_ += kTick;
    shares_->advance(now_, std::vector<Work>{{.vgpu = 1, .wants = false, .worked = kTick, .familiar = true},
                                             {.vgpu = 2, .wants = true, .familiar = true}});
  }
  EXPECT_TRUE(shares_->may_run(2)) << "it has gone";
}

TEST_F(ProgressSharesTest, WhatAllLackIsOwedToNobody) {
  add(1, 50), add(2, 50);
  run_for(5 * kSecond, {{1, 0.3}, {2, 0.3}});
  EXPECT_EQ(held_[1] + held_[2], 0);
  held_.clear();
  run_for(kSecond, {{1, 0.6}, {2, 0.6}});
  EXPECT_EQ(held_[1] + held_[2], 0) << "what they lacked before is not made good";
}

TEST_F(ProgressSharesTest, WhatNobodyLackedIsNotHeldAgainstOne) {
  add(1, 50), add(2, 50);
  run_for(5 * kSecond, {{1, 1.0}, {2, 0.5}});
  held_.clear();
  run_for(kSecond, {{1, 0.5}, {2, 0.5}});
  EXPECT_EQ(held_[1], 0);
}

TEST_F(ProgressSharesTest, WhoIsNotKnownIsLearntAlone) {
  add(1, 50), add(2, 50);
  run_for(kTick, {{1, 0.5}, {2, 0.5}}, false);
  EXPECT_NE(shares_->may_run(1), shares_->may_run(2));
  run_for(10 * kMillisecond, {{1, 0.5}, {2, 0.5}});
  EXPECT_TRUE(shares_->may_run(1) || shares_->may_run(2));
  run_for(kSecond, {{1, 0.5}, {2, 0.5}});
  held_.clear();
  run_for(kSecond, {{1, 0.5}, {2, 0.5}});
  EXPECT_EQ(held_[1] + held_[2], 0);
}

// In vain: after a second, two, four ... up to sixteen.
TEST_F(ProgressSharesTest, WhatCannotBeLearntIsTriedSeldom) {
  add(1, 50), add(2, 50);
  run_for(60 * kSecond, {{1, 0.5}, {2, 0.5}}, false);
  held_.clear();
  run_for(60 * kSecond, {{1, 0.5}, {2, 0.5}}, false);
  EXPECT_GT(held_[1], 0);
  EXPECT_LE(held_[1], 5 * kSecond);
  EXPECT_LE(held_[2], 5 * kSecond);
}

TEST_F(ProgressSharesTest, ACapHoldsAndMakesNobodyElseWait) {
  add(1, 20, 30), add(2, 20);
  run_for(5 * kSecond, {{1, 1.0}, {2, 0.5}});
  EXPECT_NEAR(static_cast<double>(done_[1]) / (5 * kSecond), 0.3, 0.02);
  EXPECT_EQ(held_[2], 0);
}

TEST_F(ProgressSharesTest, WhoGoesFirstAndUsesLittleIsNeverHeldBack) {
  add(1, 1), add(2, 99);
  int held = 0;
  for (int i = 0; i < 1000; ++i) {
    now_ += kTick;
    shares_->advance(now_, std::vector<Work>{{1, true, kTick, kTick / 20, true, true}, {2, true, 0, 0, true, false}});
    held += i > 100 && !shares_->may_run(1);
  }
  EXPECT_EQ(held, 0);
  EXPECT_TRUE(shares_->is_light(1));
}

}  // namespace
}  // namespace bandsaw::sched
