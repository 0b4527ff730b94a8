#include "backend/session/usage_page_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/control/stall_budget.h"
#include "memory/base/clock.h"

namespace bandsaw {
namespace {

class UsagePageOwnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    page =
        static_cast<UsagePage*>(::mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, owner.fd(), 0));
  }
  void TearDown() override { ::munmap(page, sizeof(UsagePage)); }
  UsagePageOwner owner = std::move(UsagePageOwner::open(1000).value());
  UsagePage* page = nullptr;  // as a runner sees it
};

TEST_F(UsagePageOwnerTest, TellsTheShare) {
  const auto* limits =
      static_cast<const LimitsPage*>(::mmap(nullptr, sizeof(LimitsPage), PROT_READ, MAP_SHARED, owner.limits_fd(), 0));
  ASSERT_NE(limits, MAP_FAILED);
  EXPECT_EQ(limits->memory_share, 1000);
  owner.set_memory_share(2000);
  EXPECT_EQ(limits->memory_share, 2000);
  EXPECT_EQ(limits->most[static_cast<size_t>(Limited::kStreams)],
            kDefaultLimits[static_cast<size_t>(Limited::kStreams)]);
  owner.set_limits({1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(limits->most[static_cast<size_t>(Limited::kStreams)], 2u);
  ::munmap(const_cast<LimitsPage*>(limits), sizeof(LimitsPage));
}

TEST_F(UsagePageOwnerTest, ProgramsBeginMoreSlowlyOnlyWhileOthersWork) {
  const auto beginnings = [&] {
    int count = 0;
    while (count < 20 && owner.begin_program() == std::chrono::nanoseconds(0)) ++count;
    return count;
  };
  page->grant_page.no_arbiter = 0;
  page->grant_page.others_worked_at = monotonic_ns();
  EXPECT_EQ(beginnings(), 20) << "nothing stops others on this device";
  owner.pace_stalls(true);
  EXPECT_LT(beginnings(), 20);
  EXPECT_GT(owner.held()[static_cast<size_t>(Limited::kStallMs)], 0u);
  page->grant_page.others_worked_at = monotonic_ns() - kOthersWorkFor - 1;
  EXPECT_EQ(beginnings(), 20) << "nobody else has work";
  EXPECT_EQ(owner.stall_waits().count, 1u);
  page->grant_page.others_worked_at = monotonic_ns();
  page->grant_page.no_arbiter = 1;
  EXPECT_EQ(beginnings(), 20) << "nobody says whether others have work";
}

TEST_F(UsagePageOwnerTest, AFaultDelaysTheNextProgram) {
  owner.pace_stalls(true);
  page->grant_page.no_arbiter = 0;
  page->grant_page.others_worked_at = monotonic_ns();
  EXPECT_EQ(owner.stall_debt().count(), 0);
  (void)StallBudget(&page->stalls_paid_at)
      .take(kFaultStall, owner.limits()[static_cast<size_t>(Limited::kStallMs)], monotonic_ns());
  EXPECT_GT(owner.stall_debt(), std::chrono::seconds(1));
  EXPECT_GT(owner.begin_program(), std::chrono::seconds(1));
}

// A runner that has been taken over has the descriptor, and can open it anew.
TEST_F(UsagePageOwnerTest, NobodyElseWritesLimits) {
  EXPECT_EQ(::mmap(nullptr, sizeof(LimitsPage), PROT_READ | PROT_WRITE, MAP_SHARED, owner.limits_fd(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(owner.limits_fd(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(owner.limits_fd(), 0), -1);
  const std::string again = "/proc/self/fd/" + std::to_string(owner.limits_fd());
  const UniqueFd opened(::open(again.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::mmap(nullptr, sizeof(LimitsPage), PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(opened.get(), "x", 1, 0), -1);
  void* const readable = ::mmap(nullptr, sizeof(LimitsPage), PROT_READ, MAP_SHARED, owner.limits_fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, sizeof(LimitsPage), PROT_READ | PROT_WRITE), -1);
  ::munmap(readable, sizeof(LimitsPage));
}

TEST_F(UsagePageOwnerTest, WhatADeadRunnerHeldIsFree) {
  constexpr auto kStreams = static_cast<size_t>(Limited::kStreams);
  const int first = owner.take_slot(), second = owner.take_slot();
  page->slots[first].held[kStreams] = 30;
  page->slots[second].held[kStreams] = 12;
  page->held[kStreams] = 43;  // one died between its two additions
  EXPECT_EQ(owner.held()[kStreams], 43u);
  EXPECT_EQ(owner.held()[static_cast<size_t>(Limited::kProcesses)], 2u);
  owner.give_back(first);
  EXPECT_EQ(owner.held()[kStreams], 13u);
  owner.give_back(second);
  EXPECT_EQ(owner.held()[kStreams], 0u);
  page->held[kStreams] = -5;  // as a runner likes
  EXPECT_EQ(owner.held()[kStreams], 0u);
}

TEST_F(UsagePageOwnerTest, ADeadRunnersMemoryIsFreeAndItsCountersStay) {
  const int first = owner.take_slot(), second = owner.take_slot();
  page->slots[first].memory_bytes = 300;
  page->slots[first].launches = 5;
  page->slots[second].memory_bytes = 100;
  page->slots[second].launches = 2;
  page->memory_used = 400;
  owner.give_back(first);
  EXPECT_EQ(page->memory_used, 100);
  EXPECT_EQ(owner.total().launches, 7u);
  EXPECT_EQ(owner.total().memory_bytes, 100);
  EXPECT_EQ(owner.take_slot(), first);
  EXPECT_EQ(page->slots[first].launches, 0u);
}

TEST_F(UsagePageOwnerTest, SaysWhetherAnythingWasDoneAndIsUnderWay) {
  const int slot = owner.take_slot();
  page->slots[slot].calls = 7;
  EXPECT_EQ(owner.activity().calls, 7u);
  EXPECT_FALSE(owner.activity().under_way);
  Gate& gate = page->grant_page.gates[slot][kCopyOut];
  gate.begun = 3;
  EXPECT_TRUE(owner.activity().under_way);
  gate.ended = 3;
  EXPECT_FALSE(owner.activity().under_way);
  gate.asked = 1;
  EXPECT_TRUE(owner.activity().under_way) << "it waits at a gate";
  owner.give_back(slot);
  EXPECT_EQ(owner.activity().calls, 7u) << "that a program ends is no work, and none is forgotten";
  EXPECT_FALSE(owner.activity().under_way);
}

TEST_F(UsagePageOwnerTest, TheLastOneLeavesNothingBehind) {
  const int slot = owner.take_slot();
  page->slots[slot].memory_bytes = 10;
  page->memory_used = 50;  // it died between its two additions
  owner.give_back(slot);
  EXPECT_EQ(page->memory_used, 0);
}

TEST_F(UsagePageOwnerTest, SlotsAreLimited) {
  for (uint32_t i = 0; i < kUsageSlots; ++i) EXPECT_GE(owner.take_slot(), 0);
  EXPECT_EQ(owner.take_slot(), -1);
  owner.give_back(17);
  EXPECT_EQ(owner.take_slot(), 17);
}

}  // namespace
}  // namespace bandsaw
