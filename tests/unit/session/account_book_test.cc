#include "backend/session/account_book.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace bandsaw {
namespace {

class AccountBookTest : public ::testing::Test {
 protected:
  void SetUp() override {
    account = static_cast<Account*>(::mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, MAP_SHARED, book.fd(), 0));
  }
  void TearDown() override { ::munmap(account, sizeof(Account)); }
  AccountBook book = std::move(AccountBook::open(1000).value());
  Account* account = nullptr;  // as a runner sees it
};

TEST_F(AccountBookTest, TellsTheShare) {
  EXPECT_EQ(account->memory_share, 1000);
  book.set_memory_share(2000);
  EXPECT_EQ(account->memory_share, 2000);
}

TEST_F(AccountBookTest, ADeadRunnersMemoryIsFreeAndItsCountersStay) {
  const int first = book.take_slot(), second = book.take_slot();
  account->slots[first].memory_bytes = 300;
  account->slots[first].launches = 5;
  account->slots[second].memory_bytes = 100;
  account->slots[second].launches = 2;
  account->memory_used = 400;
  book.give_back(first);
  EXPECT_EQ(account->memory_used, 100);
  EXPECT_EQ(book.total().launches, 7u);
  EXPECT_EQ(book.total().memory_bytes, 100);
  EXPECT_EQ(book.take_slot(), first);
  EXPECT_EQ(account->slots[first].launches, 0u);
}

TEST_F(AccountBookTest, TheLastOneLeavesNothingBehind) {
  const int slot = book.take_slot();
  account->slots[slot].memory_bytes = 10;
  account->memory_used = 50;  // it died between its two additions
  book.give_back(slot);
  EXPECT_EQ(account->memory_used, 0);
}

TEST_F(AccountBookTest, SlotsAreLimited) {
  for (uint32_t i = 0; i < kAccountSlots; ++i) EXPECT_GE(book.take_slot(), 0);
  EXPECT_EQ(book.take_slot(), -1);
  book.give_back(17);
  EXPECT_EQ(book.take_slot(), 17);
}

}  // namespace
}  // namespace bandsaw
