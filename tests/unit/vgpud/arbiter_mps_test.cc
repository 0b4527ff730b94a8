// The arbiter over virtual GPUs that have an engine together, in virtual time.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/vgpud/mps_tenants.h"

namespace bandsaw {
namespace {

TEST_F(ArbiterMpsTest, SharesHoldInEverySecond) {
  for (const bool divides : {true, false}) {
    for (const int percent : {50, 75}) {
      tenants_.clear();
      make();
      divides_ = divides;
      idle_ = most_ = 0;
      Tenant& large = join("a", percent, Sharing::kMps);
      Tenant& small = join("b", 100 - percent, Sharing::kMps);
      run_for(kSecond);
      charged(large, 1);
      charged(small, 1);
      for (int second = 0; second < 4; ++second) {
        run_for(kSecond);
        const double first = charged(large, kSecond), other = charged(small, kSecond);
        // Where there is room for both, nobody lacks anything.
        EXPECT_NEAR(first, divides ? percent : 100, 2);
        EXPECT_NEAR(other, divides ? 100 - percent : 100, 2);
      }
      EXPECT_EQ(most_, 2);
      EXPECT_LE(idle_, 10 * kMillisecond);
      core_.reset();
    }
  }
}

// A kernel that nothing can cut fills the device for 160 ms. In the gap between two steps of the other one it would
// begin again.
TEST_F(ArbiterMpsTest, SharesHoldBesideKernelsThatFillTheDevice) {
  for (const int percent : {50, 75, 90}) {
    tenants_.clear();
    make();
    in_turns_ = true;
    Tenant &steps = join("a", percent, Sharing::kMps), &fills = join("b", 100 - percent, Sharing::kMps);
    steps.length = 2 * kMillisecond;
    fills.length = 160 * kMillisecond;
    fills.at_once = 1;
    const auto run_steps = [&](Time time) {
      uint64_t step_end = steps.done + 40;
      for (const Time until = now_ + time; now_ < until;) {
        steps.at_once = 2;
        run_for(kMillisecond);
        if (steps.done < step_end) continue;
        steps.at_once = 0;  // 80 ms of work are done
        run_for(2 * kMillisecond);
        step_end = steps.done + 40;
      }
    };
    run_steps(4 * kSecond);
    steps.done = fills.done = 0;
    run_steps(20 * kSecond);
    const double alone = 20.0 * kSecond / (42 * steps.length) * 40;
    EXPECT_NEAR(static_cast<double>(steps.done) / alone, percent / 100.0, 0.05);
    EXPECT_NEAR(static_cast<double>(fills.done) * 160 / 20'000, 1 - percent / 100.0, 0.03);
    core_.reset();
  }
}

TEST_F(ArbiterMpsTest, LongAndShortGridSlicesAreBesideEachOther) {
  make();
  divides_ = false;
  Tenant &longer = join("a", 50, Sharing::kMps), &brief = join("b", 50, Sharing::kMps);
  longer.length = 28 * kMillisecond;
  brief.length = 100 * kMicrosecond;
  brief.at_once = 1;
  run_for(4 * kSecond);
  EXPECT_GT(brief.done, 25'000u);
  EXPECT_GT(longer.done, 110u);
  EXPECT_NEAR(charged(longer, 4 * kSecond), 100, 2) << "it does what it does alone";
}

TEST_F(ArbiterMpsTest, ATimeSlicedOneIsAloneAndHasItsShare) {
  for (const PlanningMode mode : {PlanningMode::kMps, PlanningMode::kSlicesFifo, PlanningMode::kConsolidation}) {
    tenants_.clear();
    make();
    core_->set_planning_mode(mode, now_);
    Tenant& alone = join("a", 40, Sharing::kTimeSliced);
    Tenant &one = join("b", 30, Sharing::kMps), &other = join("c", 30, Sharing::kMps);
    run_for(kSecond);
    for (auto& tenant : tenants_) charged(*tenant, 1);
    idle_ = 0;
    run_for(2 * kSecond);
    EXPECT_NEAR(charged(alone, 2 * kSecond), 40, 2) << static_cast<int>(mode);
    EXPECT_NEAR(charged(one, 2 * kSecond), 30, 2) << static_cast<int>(mode);
    EXPECT_NEAR(charged(other, 2 * kSecond), 30, 2) << static_cast<int>(mode);
    EXPECT_LE(idle_, 100 * kMillisecond);
    core_.reset();
  }
}

// The first of them is given up, and looked at again and again; that gives the second no more time.
TEST_F(ArbiterMpsTest, TwoThatNeverEndAreGivenUpBoth) {
  ArbiterOptions options;
  options.policy = "band";
  make(options);
  add("hangs", 50, Sharing::kMps);
  add("waits", 50, Sharing::kTimeSliced);
  const auto hangs = std::make_unique<GrantPage>(), waits = std::make_unique<GrantPage>();
  core_->attach("hangs", hangs.get(), now_);
  core_->attach("waits", waits.get(), now_);
  Gate& gate = waits->gates[0][0];
  ++gate.asked;
  ArbiterFixture::tell("waits", *waits);
  ++gate.begun;
  for (const uint32_t slot : {0u, 1u}) {
    ++hangs->gates[slot][0].asked;
    set_pending(*hangs, slot);
  }
  ArbiterFixture::tell("hangs", *hangs);
  ++gate.ended;
  ArbiterFixture::tell("waits", *waits);
  EXPECT_EQ(hangs->gates[0][0].granted + hangs->gates[1][0].granted, 2u);
  ++gate.asked;
  ArbiterFixture::tell("waits", *waits);
  for (const Time until = now_ + 2 * kSecond; now_ < until;) {
    now_ = std::max(next_, now_ + kMicrosecond);
    next_ = core_->run(now_);
  }
  EXPECT_EQ(gate.granted, 2u);
  core_.reset();
}

TEST_F(ArbiterMpsTest, ConsolidationIsOfTwoWholeKernels) {
  make();
  core_->set_planning_mode(PlanningMode::kConsolidation, now_);
  for (const char* name : {"a", "b", "c", "d"}) join(name, 25, Sharing::kMps);
  run_for(2 * kSecond);
  EXPECT_EQ(most_, 2);
  for (auto& tenant : tenants_) {
    EXPECT_NEAR(charged(*tenant, 2 * kSecond), 25, 2);
    EXPECT_EQ(tenant->grant_page->slicing_off, 1u);
  }
  core_->set_planning_mode(PlanningMode::kMps, now_);
  run_for(kSecond);
  EXPECT_EQ(most_, 4);
  EXPECT_EQ(tenants_[0]->grant_page->slicing_off, 0u);
}

TEST_F(ArbiterMpsTest, ACapHoldsBesideOthers) {
  make();
  Tenant &capped = join("a", 20, Sharing::kMps, 20), &other = join("b", 50, Sharing::kMps);
  capped.at_once = other.at_once = 1;
  run_for(2 * kSecond);
  EXPECT_NEAR(charged(capped, 2 * kSecond), 20, 2);
  EXPECT_NEAR(charged(other, 2 * kSecond), 80, 2);
}

// The hardware serves copies in turns, whosever they are.
class ArbiterCopiesTest : public ArbiterMpsTest {
 protected:
  void make_copiers(const std::string& policy) {
    tenants_.clear();
    core_.reset();
    ArbiterOptions options;
    options.copies_beside = true;
    options.policy = policy;
    make(options);
    for (const int percent : {75, 25}) {
      Tenant& tenant = join(percent == 75 ? "a" : "b", percent, Sharing::kTimeSliced);
      tenant.engine = kCopyIn;
      tenant.mps = policy == "band+";
    }
    idle_ = most_ = 0;
  }
};

TEST_F(ArbiterCopiesTest, CopiesOfTimeSlicedOnesAreBesideEachOther) {
  for (const bool in_turns : {true, false}) {
    make_copiers("band+");
    in_turns_ = in_turns;
    Tenant &large = *tenants_[0], &small = *tenants_[1];
    run_for(kSecond);
    const uint64_t large_before = large.done, small_before = small.done;
    charged(large, 1), charged(small, 1);
    run_for(4 * kSecond);
    EXPECT_NEAR(charged(large, 4 * kSecond), 75, 1.5) << in_turns;
    EXPECT_NEAR(charged(small, 4 * kSecond), 25, 1.5) << in_turns;
    const auto done = static_cast<double>(large.done - large_before),
               other = static_cast<double>(small.done - small_before);
    EXPECT_NEAR(done / (done + other), 0.75, 0.01) << in_turns;
    EXPECT_EQ(most_, 2);
    EXPECT_LE(idle_, 5 * kMillisecond);
  }
}

TEST_F(ArbiterCopiesTest, AShortCopyDoesNotWaitForTheEndOfALongOne) {
  make_copiers("band+");
  Tenant &brief = *tenants_[1], &longer = *tenants_[0];
  brief.length = 20 * kMicrosecond;
  brief.at_once = 1;
  longer.length = 2 * kMillisecond;
  run_for(kSecond);
  EXPECT_GT(brief.done, 5000u);
  EXPECT_GT(longer.done, 250u);
}

TEST_F(ArbiterCopiesTest, OtherPoliciesServeOneAtATime) {
  make_copiers("band");
  run_for(kSecond);
  EXPECT_EQ(most_, 1);
}

TEST_F(ArbiterMpsTest, WhoTurnsToMpsWaitsForItsProgramsOfBefore) {
  make();
  join("a", 50, Sharing::kMps);
  Tenant& other = join("b", 50, Sharing::kTimeSliced);
  run_for(100 * kMillisecond);
  most_ = 0;
  core_->set_sharing("b", Sharing::kMps);
  run_for(100 * kMillisecond);
  EXPECT_EQ(most_, 1);
  for (Gate& gate : other.grant_page->gates[0]) gate.begun = gate.ended = gate.asked = gate.granted = gate.open = 0;
  other.gate().busy_ns = 0;
  other.running.clear();
  other.asking = false;
  other.mps = true;
  ++other.grant_page->generation[0];
  tell(other);
  run_for(kSecond);
  EXPECT_EQ(most_, 2);
  // The other way round it is at once.
  core_->set_sharing("b", Sharing::kTimeSliced);
  next_ = core_->run(now_);
  run_for(40 * kMillisecond);
  other.mps = false;
  run_for(100 * kMillisecond);
}

TEST_F(ArbiterMpsTest, WhatRunsHasNoWaitersUntilSomebodyWaitsForItsEnd) {
  make({.policy = "band"});
  Tenant &one = join("a", 33, Sharing::kMps), &other = join("b", 33, Sharing::kMps);
  one.length = 100 * kMillisecond;
  one.at_once = other.at_once = 1;
  run_for(4 * kMillisecond);
  EXPECT_EQ(one.gate().open, 0u);
  EXPECT_EQ(one.gate().no_waiters, 1u);
  Tenant& alone = join("c", 34, Sharing::kTimeSliced);
  run_for(kMillisecond);
  EXPECT_EQ(one.gate().no_waiters, 0u);
  alone.at_once = 0;
  run_for(200 * kMillisecond);
  EXPECT_EQ(alone.gate().no_waiters, 0u);
}

// Held to the arbiter's own clock, by and by.
TEST_F(ArbiterMpsTest, WhoLiesAboutItsTimeGainsNothingOnATimeSlicedOne) {
  for (const double told : {0.0, 10.0}) {
    tenants_.clear();
    make();
    Tenant &liar = join("a", 25, Sharing::kMps), &honest = join("b", 25, Sharing::kMps);
    Tenant& alone = join("c", 50, Sharing::kTimeSliced);
    liar.told = told;
    run_for(4 * kSecond);
    for (auto& tenant : tenants_) tenant->done = 0;
    run_for(4 * kSecond);
    EXPECT_GE(alone.done, 1750u) << told;
    EXPECT_GE(honest.done, 800u) << told;
    core_.reset();
  }
}

// Counters of a runner that has been taken over are anything; its neighbours go on.
TEST_F(ArbiterMpsTest, NonsenseOnOneGrantPageHarmsNobodyElse) {
  make();
  Tenant &honest = join("a", 30, Sharing::kMps), &alone = join("b", 30, Sharing::kTimeSliced);
  add("mad", 30, Sharing::kMps);
  auto grant_page = std::make_unique<GrantPage>();
  core_->attach("mad", grant_page.get(), now_);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    scribble(*grant_page, random);
    core_->on_pending("mad", now_);
    next_ = core_->run(now_);
    run_for(5 * kStep);
  }
  honest.done = alone.done = 0;
  run_for(4 * kSecond);
  EXPECT_GT(honest.done, 1000u);
  EXPECT_GT(alone.done, 1000u);
  core_.reset();
}

// Any lengths, shares, comings and goings: what all are charged is no more than the time that passed.
TEST_F(ArbiterMpsTest, ChargesAreNoMoreThanTheTime) {
  std::mt19937 random(3);
  for (int turn = 0; turn < 10; ++turn) {
    tenants_.clear();
    make({.policy = "band", .model = turn % 2 ? sched::QueueModel::kSdq : sched::QueueModel::kMrq});
    divides_ = turn % 3 != 0;
    const Time start = now_;
    for (const char* name : {"a", "b", "c", "d"}) {
      join(name, 25, random() % 4 ? Sharing::kMps : Sharing::kTimeSliced).length =
          kStep * static_cast<Time>(1 + random() % 300);
    }
    for (int i = 0; i < 20; ++i) {
      for (auto& tenant : tenants_) tenant->at_once = random() % 3;
      run_for(static_cast<Time>(random() % 100) * kMillisecond);
    }
    double sum = 0;
    for (auto& tenant : tenants_) sum += charged(*tenant, now_ - start);
    EXPECT_LE(sum, 100.1);
    core_.reset();
  }
}

}  // namespace
}  // namespace bandsaw
