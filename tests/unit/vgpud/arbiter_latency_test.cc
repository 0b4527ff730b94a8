// The arbiter over MPS virtual GPUs of which one has a latency bound, in virtual time.
#include "tests/unit/vgpud/mps_tenants.h"

namespace bandsaw {
namespace {

class ArbiterLatencyTest : public ArbiterMpsTest {
 protected:
  Tenant& join_with_bound(const std::string& name, int percent, int cap = 100) {
    Tenant& tenant = join(name, percent, Sharing::kMps, cap);
    core_->set_latency(name, 250 * kMicrosecond);
    next_ = core_->run(now_);
    return tenant;
  }
  // Short work of it every millisecond: `length` at a time.
  void pulse(Tenant& tenant, Time length, int times) {
    tenant.length = length;
    for (int i = 0; i < times; ++i) {
      tenant.at_once = 1;
      run_for(kStep);
      tenant.at_once = 0;
      run_for(kMillisecond - kStep);
    }
  }
  LatencyMeans means(const std::string& name) const {
    for (const VgpuUse& use : core_->use()) {
      if (use.vgpu == name) return use.latency_means;
    }
    return LatencyMeans::kNothing;
  }
};

TEST_F(ArbiterLatencyTest, ItNeedNotAskAndNobodyWaitsForIt) {
  divides_ = false;
  make();
  Tenant &first = join_with_bound("a", 1), &longer = join("b", 99, Sharing::kMps);
  longer.length = 28 * kMillisecond;
  pulse(first, 60 * kMicrosecond, 1000);
  const uint32_t asked = first.gate().asked;
  first.done = longer.done = 0;
  pulse(first, 60 * kMicrosecond, 2000);
  EXPECT_EQ(first.gate().asked, asked) << "it has asked the arbiter";
  EXPECT_EQ(first.done, 2000u);
  EXPECT_EQ(first.gate().open, kOpenWide);
  EXPECT_GE(longer.done, 70u);
  EXPECT_EQ(longer.gate().open, 1u) << "the other one has the scheduler to itself";
  EXPECT_NEAR(charged(first, 3 * kSecond), 6, 1);
  EXPECT_EQ(means("a"), LatencyMeans::kPriorities);
  EXPECT_EQ(means("b"), LatencyMeans::kNothing);
  EXPECT_TRUE(core_->shares_by_progress());
  core_->set_sharing("b", Sharing::kTimeSliced);
  run_for(kSecond);
  EXPECT_FALSE(core_->shares_by_progress()) << "the driver switches between contexts and all clients of MPS";
}

TEST_F(ArbiterLatencyTest, APriorityIsEnough) {
  divides_ = false;
  make();
  Tenant& first = join("a", 20, Sharing::kMps);
  join("b", 80, Sharing::kMps);
  EngineShares shares;
  shares.fill({.percent = 20, .reservation = 0, .cap = 100, .priority = 1});
  EXPECT_TRUE(core_->set_shares("a", shares, now_).ok());
  next_ = core_->run(now_);
  pulse(first, 60 * kMicrosecond, 100);
  const uint32_t asked = first.gate().asked;
  pulse(first, 60 * kMicrosecond, 100);
  EXPECT_EQ(first.gate().asked, asked) << "it has asked the arbiter";
  EXPECT_EQ(first.gate().open, kOpenWide);
  EXPECT_EQ(means("a"), LatencyMeans::kNothing) << "it has no bound";
}

TEST_F(ArbiterLatencyTest, BeyondItsShareItGivesWayLikeEverybody) {
  make();
  Tenant &first = join_with_bound("a", 20), &other = join("b", 80, Sharing::kMps);
  run_for(2 * kSecond);
  charged(first, 1), charged(other, 1);
  run_for(4 * kSecond);
  EXPECT_NEAR(charged(first, 4 * kSecond), 20, 4);
  EXPECT_NEAR(charged(other, 4 * kSecond), 80, 4);
  other.at_once = 1;
  pulse(first, 20 * kMicrosecond, 1000);  // little again
  const uint32_t asked = first.gate().asked;
  pulse(first, 20 * kMicrosecond, 100);
  EXPECT_EQ(first.gate().asked, asked);
}

TEST_F(ArbiterLatencyTest, BeyondItsShareItGoesOnWhileNobodyLacksAnything) {
  divides_ = false;
  make();
  Tenant &first = join_with_bound("a", 20), &other = join("b", 80, Sharing::kMps);
  run_for(2 * kSecond);
  const uint32_t asked = first.gate().asked;
  charged(first, 1), charged(other, 1);
  run_for(2 * kSecond);
  EXPECT_EQ(first.gate().asked, asked);
  EXPECT_NEAR(charged(first, 2 * kSecond), 100, 2);
  EXPECT_NEAR(charged(other, 2 * kSecond), 100, 2);
}

// Other policies let it through while it uses little.
TEST_F(ArbiterLatencyTest, WithAnotherPolicyItHasAnAllowance) {
  make({.policy = "credit"});
  Tenant &first = join_with_bound("a", 20), &other = join("b", 80, Sharing::kMps);
  other.at_once = 1;
  pulse(first, 20 * kMicrosecond, 100);
  const uint32_t asked = first.gate().asked;
  pulse(first, 20 * kMicrosecond, 100);
  EXPECT_EQ(first.gate().asked, asked);
  first.at_once = other.at_once = 2;
  run_for(2 * kSecond);
  charged(first, 1), charged(other, 1);
  run_for(4 * kSecond);
  EXPECT_NEAR(charged(first, 4 * kSecond), 20, 4);
}

TEST_F(ArbiterLatencyTest, ItsShareIsNotItsMost) {
  divides_ = false;
  make();
  Tenant& first = join_with_bound("a", 1);
  join("b", 99, Sharing::kMps);
  pulse(first, 20 * kMicrosecond, 100);
  pulse(first, 80 * kMicrosecond, 1000);  // 8 % of the time
  EXPECT_EQ(first.gate().open, kOpenWide);
}

TEST_F(ArbiterLatencyTest, OneThatWasIdleForLongerThanAPeriodFindsItsGateOpen) {
  make();
  Tenant& first = join_with_bound("a", 20);
  join("b", 80, Sharing::kMps);
  pulse(first, 20 * kMicrosecond, 10);
  run_for(500 * kMillisecond);
  EXPECT_EQ(first.gate().open, kOpenWide);
  run_for(2 * kSecond);
  EXPECT_EQ(first.gate().open, 0u) << "it would be looked at for ever";
}

TEST_F(ArbiterLatencyTest, ACapHolds) {
  make();
  Tenant& first = join_with_bound("a", 20, 30);
  join("b", 70, Sharing::kMps).at_once = 0;
  run_for(kSecond);
  charged(first, 1);
  run_for(2 * kSecond);
  EXPECT_NEAR(charged(first, 2 * kSecond), 30, 2);
}

TEST_F(ArbiterLatencyTest, BesideATimeSlicedOneItTakesTurns) {
  make();
  Tenant &first = join_with_bound("a", 50), &alone = join("b", 50, Sharing::kTimeSliced);
  alone.length = 100 * kMicrosecond;
  alone.at_once = first.at_once = 1;
  alone.mps = first.mps = true;  // what was begun before the other one came goes on beside it
  run_for(10 * kMillisecond);
  alone.mps = false;
  run_for(kSecond);
  EXPECT_EQ(means("a"), LatencyMeans::kNothing);
  charged(first, 1), charged(alone, 1);
  run_for(2 * kSecond);
  EXPECT_NEAR(charged(first, 2 * kSecond), 50, 3);
}

TEST_F(ArbiterLatencyTest, WithoutABoundItRunsNoFurtherAhead) {
  make();
  Tenant& first = join_with_bound("a", 20);
  join("b", 80, Sharing::kMps);
  pulse(first, 20 * kMicrosecond, 1000);
  EXPECT_EQ(first.gate().open, kOpenWide);
  core_->set_latency("a", 0);
  next_ = core_->run(now_);
  run_for(100 * kMillisecond);
  pulse(first, 20 * kMicrosecond, 10);
  EXPECT_EQ(first.gate().open, 1u);
}

TEST_F(ArbiterLatencyTest, ShortBlocksAreCutForThoseWhoDoNotGoFirst) {
  make();
  Tenant &first = join_with_bound("a", 20), &longer = join("b", 50, Sharing::kMps);
  run_for(10 * kMillisecond);
  EXPECT_EQ(longer.grant_page->uncut_block_ns, 250'000u);
  EXPECT_EQ(first.grant_page->uncut_block_ns, 0u);
  Tenant& third = join("c", 20, Sharing::kMps);
  run_for(10 * kMillisecond);
  EXPECT_EQ(longer.grant_page->uncut_block_ns, 0u) << "the third one needs its share";
  third.at_once = 0;
  run_for(10 * kMillisecond);
  third.gate().begun = third.gate().ended = third.gate().asked = 0;
  run_for(40 * kMillisecond);
  EXPECT_EQ(longer.grant_page->uncut_block_ns, 250'000u);
  core_->set_latency("a", 0);
  core_->run(now_);
  EXPECT_EQ(longer.grant_page->uncut_block_ns, 0u);
}

}  // namespace
}  // namespace bandsaw
