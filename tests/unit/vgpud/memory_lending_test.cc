// What the arbiter makes of usage pages, in virtual time.
#include "backend/vgpud/arbiter/memory_lending.h"

#include <gtest/gtest.h>

#include <memory>

namespace bandsaw {
namespace {

constexpr int64_t kMiB = 1 << 20, kReserved = 1024 * kMiB, kUsed = 1536 * kMiB, kMs = 1'000'000;

class MemoryLendingTest : public testing::Test {
 protected:
  MemoryLendingTest() {
    const MemoryTerms terms{2 * kReserved, kReserved, kReserved / 2};
    for (const char* name : {"a", "b"}) {
      lending_.set(name, terms);
      pages_[name] = std::make_unique<UsagePage>();
      pages_[name]->memory_used = kUsed;
      pages_[name]->swapped = kUsed - kReserved;
      lending_.attach(name, pages_[name].get());
    }
  }
  UsagePage& page(const std::string& name) { return *pages_[name]; }
  // `a` works and finds no room; orders are in force at once where their session has `answers`.
  void run(int milliseconds, bool answers = true) {
    for (int i = 0; i < milliseconds; ++i, now_ += kMs) {
      page("a").worked_at = page("a").short_at = now_;
      lending_.review([this](const std::string& name) { return name == works_; }, now_);
      for (const auto& [name, order] : lending_.take_orders()) {
        orders_[name] = order;
        if (!answers) continue;
        page(name).beyond = order.beyond;
        const int64_t over = kUsed - page(name).swapped - kReserved - order.beyond;
        if (over > 0) page(name).swapped += over;
      }
    }
  }

  std::map<std::string, std::unique_ptr<UsagePage>> pages_;
  std::map<std::string, MemoryOrder> orders_;
  std::string works_;
  MemoryLending lending_;
  int64_t now_ = 10'000 * kMs;
};

TEST_F(MemoryLendingTest, WhoIsAloneGetsNoHostMemoryForLending) {
  run(1);
  EXPECT_EQ(orders_["a"].host_room, static_cast<uint64_t>(kReserved / 2));
  lending_.remove("b");
  run(1);
  EXPECT_EQ(orders_["a"].host_room, 0u);
  lending_.set("b", MemoryTerms{2 * kReserved, kReserved, kReserved / 2});
  run(1);
  EXPECT_EQ(orders_["a"].host_room, static_cast<uint64_t>(kReserved / 2));
}

TEST_F(MemoryLendingTest, WhoRestsLends) {
  run(100);
  EXPECT_EQ(orders_["b"].beyond, -kReserved / 2);
  EXPECT_EQ(orders_["b"].host_room, static_cast<uint64_t>(kReserved / 2));
  EXPECT_GT(orders_["a"].beyond, kReserved / 4);
  EXPECT_LE(orders_["a"].beyond, kReserved / 2);
}

TEST_F(MemoryLendingTest, WhoseGatesHoldWorkDoesNot) {
  works_ = "b";
  run(100);
  EXPECT_EQ(orders_["a"].beyond, 0);
  EXPECT_EQ(orders_["b"].beyond, 0);
}

TEST_F(MemoryLendingTest, NothingIsGivenBeforeASessionHasHeard) {
  run(100, false);
  EXPECT_EQ(orders_["b"].beyond, -kReserved / 2);
  EXPECT_EQ(orders_["a"].beyond, 0);
  EXPECT_GT(orders_["a"].coming, 0);
}

TEST_F(MemoryLendingTest, WhoIsSuspendedGivesUpWhatItHasBorrowed) {
  run(100);
  ASSERT_GT(orders_["a"].beyond, 0);
  lending_.set("a", std::nullopt);
  const auto orders = lending_.take_orders();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(orders[0].first, "a");
  EXPECT_EQ(orders[0].second.beyond, 0);
  EXPECT_EQ(orders[1].first, "b");
  EXPECT_EQ(orders[1].second.host_room, 0u) << "who is alone lends nothing, and makes nothing ready for it";
}

TEST_F(MemoryLendingTest, NonsenseOnAPageIsBounded) {
  page("b").beyond = INT64_MAX;
  page("b").memory_used = INT64_MIN;
  page("b").swapped = INT64_MAX;
  page("b").worked_at = INT64_MAX;
  page("b").short_at = INT64_MIN;
  run(100);
  EXPECT_EQ(orders_["a"].beyond, 0);
  lending_.attach("b", &page("b"));
  run(100);
  EXPECT_LE(lending_.debt(), static_cast<uint64_t>(2 * kReserved));
}

}  // namespace
}  // namespace bandsaw
