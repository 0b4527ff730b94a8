#include "backend/session/usage_page_owner.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

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
  EXPECT_EQ(page->memory_share, 1000);
  owner.set_memory_share(2000);
  EXPECT_EQ(page->memory_share, 2000);
  EXPECT_FALSE(owner.restore_memory_share());
  page->memory_share = 1 << 30;  // by a runner
  EXPECT_EQ(owner.memory_share(), 2000u);
  EXPECT_TRUE(owner.restore_memory_share());
  EXPECT_EQ(page->memory_share, 2000);
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
