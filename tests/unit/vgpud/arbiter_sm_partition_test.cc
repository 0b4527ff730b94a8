// The arbiter over virtual GPUs of which one has SMs of its own, in virtual time.
#include <random>

#include "tests/unit/vgpud/mps_tenants.h"

namespace bandsaw {
namespace {

class ArbiterSmPartitionTest : public ArbiterMpsTest {
 protected:
  static constexpr double kPart = 0.25;

  ArbiterSmPartitionTest() { divides_ = false; }
  Tenant& join_with_sms(const std::string& name, int percent) {
    Tenant& tenant = join(name, percent, Sharing::kMps);
    core_->set_sm_part(name, kPart);
    next_ = core_->run(now_);
    tenant.own_sms = true;
    return tenant;
  }
  double waited_ms(const Tenant& tenant) {
    for (const VgpuUse& use : core_->use()) {
      if (use.vgpu == tenant.name) return static_cast<double>(use.engines[0].wait_ns) / 1e6;
    }
    return -1;
  }
};

TEST_F(ArbiterSmPartitionTest, WaitsForNobodyAndIsChargedItsPart) {
  make();
  Tenant &own = join_with_sms("a", 1), &longer = join("b", 99, Sharing::kMps);
  longer.length = 28 * kMillisecond;
  own.length = 100 * kMicrosecond;
  own.at_once = 1;
  run_for(200 * kMillisecond);
  charged(own, 1), charged(longer, 1);
  own.done = longer.done = 0;
  run_for(2 * kSecond);
  EXPECT_GE(own.done, 19'900u);
  EXPECT_GE(longer.done, 70u);
  EXPECT_EQ(own.gate().open, 1u);
  EXPECT_NEAR(charged(own, 2 * kSecond), 100 * kPart, 1);
  EXPECT_NEAR(charged(longer, 2 * kSecond), 100, 1.5) << "the other one has the time to itself";
  EXPECT_EQ(waited_ms(own), 0);
}

TEST_F(ArbiterSmPartitionTest, OthersShareAsIfItWereNotThere) {
  for (const char* policy : {"band+", "credit"}) {
    tenants_.clear();
    make({.policy = policy});
    divides_ = true;
    Tenant &one = join("a", 60, Sharing::kMps), &other = join("b", 20, Sharing::kMps);
    run_for(kSecond);
    charged(one, 1), charged(other, 1);
    run_for(2 * kSecond);
    const double before = charged(one, 2 * kSecond);
    Tenant& own = join_with_sms("c", 20);
    run_for(kSecond);
    charged(one, 1), charged(other, 1), charged(own, 1);
    run_for(2 * kSecond);
    EXPECT_NEAR(charged(one, 2 * kSecond), before, 5) << policy;
    EXPECT_NEAR(charged(other, 2 * kSecond), 100 - before, 5) << policy;
    EXPECT_NEAR(charged(own, 2 * kSecond), 100 * kPart, 1) << policy;
    core_.reset();
  }
}

TEST_F(ArbiterSmPartitionTest, WhoIsAloneBesideItNeedNotAsk) {
  make();
  join_with_sms("a", 50);
  Tenant& other = join("b", 50, Sharing::kMps);
  run_for(200 * kMillisecond);
  EXPECT_EQ(other.gate().open, 1u);
}

TEST_F(ArbiterSmPartitionTest, ATimeSlicedOneStillHasTheEngineAlone) {
  make();
  Tenant &own = join_with_sms("a", 50), &alone = join("b", 50, Sharing::kTimeSliced);
  alone.at_once = 0;
  run_for(100 * kMillisecond);
  EXPECT_EQ(own.gate().open, 1u);
  alone.at_once = 1;
  ++alone.gate().asked;  // a program of it begins
  alone.asking = true;
  tell(alone);
  alone.mps = true;  // what was begun before goes on beside it
  run_for(10 * kMillisecond);
  alone.mps = false;
  run_for(kSecond);
  charged(own, 1), charged(alone, 1);
  run_for(2 * kSecond);
  EXPECT_NEAR(charged(own, 2 * kSecond), 50, 3);
  EXPECT_NEAR(charged(alone, 2 * kSecond), 50, 3);
  // Its programs have gone.
  alone.at_once = 0;
  run_for(100 * kMillisecond);
  alone.gate().begun = alone.gate().ended = alone.gate().asked = alone.gate().granted = 0;
  alone.gate().busy_ns = 0;
  ++alone.grant_page->generation[0];
  tell(alone);
  own.done = 0;
  run_for(kSecond);
  charged(own, 1);
  run_for(kSecond);
  EXPECT_NEAR(charged(own, kSecond), 100 * kPart, 1);
}

TEST_F(ArbiterSmPartitionTest, ProgramsOfBeforeContendUntilTheyHaveGone) {
  make();
  divides_ = true;
  Tenant &one = join("a", 50, Sharing::kMps), &other = join("b", 50, Sharing::kMps);
  run_for(kSecond);
  core_->set_sm_part("a", kPart);
  charged(one, 1);
  run_for(kSecond);
  EXPECT_NEAR(charged(one, kSecond), 50, 3);
  one.at_once = 0;
  run_for(100 * kMillisecond);
  one.gate().begun = one.gate().ended = one.gate().asked = one.gate().granted = one.gate().open = 0;
  one.gate().busy_ns = 0;
  ++one.grant_page->generation[0];
  tell(one);
  one.at_once = 2;
  one.own_sms = true;
  charged(one, 1), charged(other, 1);
  run_for(kSecond);
  EXPECT_NEAR(charged(one, kSecond), 100 * kPart, 2);
  EXPECT_NEAR(charged(other, kSecond), 100, 4);
  core_->set_sm_part("a", 0);
  next_ = core_->run(now_);
  one.own_sms = false;
  run_for(200 * kMillisecond);
  charged(one, 1), charged(other, 1);
  run_for(kSecond);
  EXPECT_NEAR(charged(one, kSecond), 50, 3);
  EXPECT_NEAR(charged(other, kSecond), 50, 3);
}

TEST_F(ArbiterSmPartitionTest, AnIdleOneIsNotProbed) {
  make();
  Tenant& own = join_with_sms("a", 50);
  run_for(100 * kMillisecond);
  own.at_once = 0;
  run_for(200 * kMillisecond);
  EXPECT_EQ(own.gate().open, 0u);
  EXPECT_EQ(core_->run(now_), ArbiterCore::kNever);
  own.at_once = 1;
  own.done = 0;
  charged(own, 1);
  run_for(400 * kMillisecond);
  EXPECT_GE(own.done, 399u);
  EXPECT_NEAR(charged(own, 400 * kMillisecond), 100 * kPart, 2) << "what was not looked at yet is missing";
}

TEST_F(ArbiterSmPartitionTest, OneQueueForAllEnginesOrNoPolicy) {
  for (const bool scheduled : {true, false}) {
    tenants_.clear();
    make({.scheduled = scheduled, .model = sched::QueueModel::kSdq});
    Tenant &own = join_with_sms("a", 50), &other = join("b", 50, Sharing::kMps);
    run_for(100 * kMillisecond);
    own.done = other.done = 0;
    if (!scheduled) {
      EXPECT_EQ(own.grant_page->no_arbiter, 1u) << "nobody need ask";
      continue;
    }
    run_for(kSecond);
    EXPECT_GE(own.done, 990u);
    EXPECT_GE(other.done, 970u);
    core_.reset();
  }
}

TEST_F(ArbiterSmPartitionTest, NonsenseOnItsGrantPageHarmsNobodyElse) {
  make();
  join_with_sms("a", 30);
  Tenant &honest = join("b", 30, Sharing::kMps), &alone = join("c", 30, Sharing::kTimeSliced);
  alone.at_once = 0;
  tenants_[0]->at_once = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    scribble(*tenants_[0]->grant_page, random);
    if (i % 500 == 0) core_->set_sm_part("a", i % 1000 ? kPart : 0);
    if (i % 700 == 0) alone.at_once = i % 1400 ? 2 : 0;
    core_->on_pending("a", now_);
    next_ = core_->run(now_);
    run_for(5 * kStep);
  }
  alone.at_once = 2;
  honest.done = alone.done = 0;
  run_for(4 * kSecond);
  EXPECT_GT(honest.done, 1000u);
  EXPECT_GT(alone.done, 1000u);
  core_.reset();
}

}  // namespace
}  // namespace bandsaw
