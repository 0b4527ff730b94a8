// Which work of the device is known to have ended.
#include "memory/managed/work_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace bandsaw::managed {
namespace {

constexpr WorkStream kFirst{10, 1}, kSecond{11, 1}, kOther{12, 2};

void work(WorkTable* table, const WorkStream& stream) {
  const auto on = table->of(stream);
  on->begin();
  on->published();
}

TEST(WorkTable, AWaitCoversItsStream) {
  WorkTable table;
  EXPECT_TRUE(table.all_quiet());
  EXPECT_TRUE(table.quiet(kFirst));
  work(&table, kFirst);
  work(&table, kSecond);
  EXPECT_FALSE(table.quiet(kFirst));
  WorkWait(table, kFirst).succeeded();
  EXPECT_TRUE(table.quiet(kFirst));
  EXPECT_FALSE(table.quiet(kSecond));
  EXPECT_FALSE(table.all_quiet());
  WorkWait(table, kSecond).succeeded();
  EXPECT_TRUE(table.all_quiet());
}

TEST(WorkTable, AWaitForAContextCoversItsStreamsOnly) {
  WorkTable table;
  for (const WorkStream& stream : {kFirst, kSecond, kOther}) work(&table, stream);
  WorkWait(table, 1).succeeded();
  EXPECT_TRUE(table.quiet(kFirst));
  EXPECT_TRUE(table.quiet(kSecond));
  EXPECT_FALSE(table.quiet(kOther));
  WorkWait(table).succeeded();
  EXPECT_TRUE(table.all_quiet());
}

TEST(WorkTable, WorkThatCameAfterAWaitBeganIsNotCovered) {
  WorkTable table;
  work(&table, kFirst);
  const WorkWait wait(table, kFirst);
  work(&table, kFirst);
  wait.succeeded();
  EXPECT_FALSE(table.quiet(kFirst));
}

TEST(WorkTable, AWaitBesideARecordThatIsNotPublishedCoversNothing) {
  WorkTable table;
  work(&table, kFirst);
  table.of(kFirst)->begin();
  const WorkWait wait(table, kFirst);
  table.of(kFirst)->published();
  wait.succeeded();
  EXPECT_FALSE(table.quiet(kFirst));
  WorkWait(table, kFirst).succeeded();
  EXPECT_TRUE(table.quiet(kFirst));
}

TEST(WorkTable, AFailedWaitSaysNothing) {
  WorkTable table;
  work(&table, kFirst);
  {
    const WorkWait wait(table, kFirst);
  }
  EXPECT_FALSE(table.quiet(kFirst));
}

TEST(WorkTable, WorkOfAStreamThatIsGoneStillCounts) {
  WorkTable table;
  work(&table, kFirst);
  table.stream_ended(kFirst);
  EXPECT_FALSE(table.all_quiet());
  WorkWait(table).succeeded();
  EXPECT_TRUE(table.all_quiet());
  work(&table, kFirst);
  EXPECT_FALSE(table.quiet(kFirst)) << "another stream has its handle";
}

TEST(WorkTable, DefaultStreamsAreAContextsOrAThreads) {
  WorkTable table;
  work(&table, {1, 1, true});
  EXPECT_TRUE(table.quiet({1, 2, true}));
  work(&table, {2, 1, true, 100});
  EXPECT_TRUE(table.quiet({2, 1, true, 101}));
  EXPECT_FALSE(table.quiet({2, 1, true, 100}));
  work(&table, kFirst);
  EXPECT_FALSE(table.quiet({10, 5})) << "others are known by their number";
}

TEST(WorkTable, ThreadsCountTogether) {
  WorkTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        work(&table, kFirst);
        WorkWait(table, kFirst).succeeded();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  WorkWait(table, kFirst).succeeded();
  EXPECT_TRUE(table.all_quiet());
}

}  // namespace
}  // namespace bandsaw::managed
