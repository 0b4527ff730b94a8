// What is said of pages of managed memory, and read back.
#include "memory/managed/advice.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace bandsaw::managed {
namespace {

using Piece = managed::Run;  // a test has a member Run

constexpr uint64_t kPage = 4096, kBytes = 10 * kPage;
constexpr Place kDevice{1, 0}, kHost{2, 0};

TEST(Advice, IsSaidOfPages) {
  AdviceTable table(kBytes, kPage);
  EXPECT_EQ(table.of({0, kBytes}), Advice{});
  table.change({kPage + 100, kPage}, [](Advice& advice) { advice.read_mostly = true; });
  EXPECT_TRUE(table.of({kPage, 2 * kPage}).read_mostly) << "also where only a part of a page was named";
  EXPECT_FALSE(table.of({kPage, 2 * kPage + 1}).read_mostly);
  EXPECT_FALSE(table.of({0, kPage + 1}).read_mostly);
}

TEST(Advice, WhatPagesDoNotShareIsNotSaid) {
  AdviceTable table(kBytes, kPage);
  table.change({0, kBytes}, [](Advice& advice) { advice.preferred = advice.prefetched = kDevice; });
  table.change({5 * kPage, kPage}, [](Advice& advice) { advice.preferred = kHost; });
  EXPECT_EQ(table.of({0, 5 * kPage}).preferred, kDevice);
  EXPECT_EQ(table.of({5 * kPage, kPage}).preferred, kHost);
  EXPECT_EQ(table.of({0, kBytes}).preferred, Place{});
  EXPECT_EQ(table.of({0, kBytes}).prefetched, kDevice);
}

TEST(Advice, ManyChangesAgreeWithATableOfPages) {
  std::mt19937 random(5);
  AdviceTable table(kBytes, kPage);
  std::vector<bool> pages(kBytes / kPage);
  for (int round = 0; round < 5000; ++round) {
    const uint64_t first = random() % pages.size(), count = 1 + random() % (pages.size() - first);
    const Piece run{first * kPage, count * kPage};
    if (random() % 2) {
      const bool value = random() % 2;
      table.change(run, [&](Advice& advice) { advice.accessed_by_device = value; });
      for (uint64_t page = first; page < first + count; ++page) pages[page] = value;
    }
    bool all = true;
    for (uint64_t page = first; page < first + count; ++page) all = all && pages[page];
    ASSERT_EQ(table.of(run).accessed_by_device, all);
  }
}

}  // namespace
}  // namespace bandsaw::managed
