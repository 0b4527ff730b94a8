// The search for a partition of the SMs: it finds the best one, and lives with nonsense.
#include "vgpu-sched/slice/partition_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace bandsaw::slice {
namespace {

const BlockNeeds kSmall{.threads = 256}, kLarge{.threads = 512};  // 8 and 4 of them on an SM

using Speeds = std::function<std::pair<double, double>(const Partition&)>;

int epochs_until_steady(PartitionSearch* search, const Speeds& speeds) {
  int epochs = 0;
  for (; !search->is_steady() && epochs < 200; ++epochs) {
    const auto [a, b] = speeds(search->next());
    search->measured(a, b);
  }
  return epochs;
}

// The first needs all it can get, the second is as fast with one block as with all.
std::pair<double, double> greedy_and_modest(const Partition& partition) {
  return partition.spatial ? std::pair(0.5, 0.5) : std::pair(partition.a / 4.0, partition.b == 0 ? 0.0 : 1.0);
}

TEST(PartitionSearch, BeginsEvenAndGoesWhereItIsBest) {
  PartitionSearch search(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput);
  EXPECT_EQ(search.next(), (Partition{.a = 2, .b = 4}));
  EXPECT_LE(epochs_until_steady(&search, greedy_and_modest), 12);
  EXPECT_EQ(search.incumbent(), (Partition{.a = 3, .b = 2}));
  EXPECT_EQ(search.next(), search.incumbent());
}

TEST(PartitionSearch, TheSameWithTheKernelsTheOtherWayRound) {
  PartitionSearch search(GpuModel{}, kSmall, kLarge, PartitionGoal::kThroughput);
  epochs_until_steady(&search, [](const Partition& partition) {
    const auto [b, a] = greedy_and_modest({partition.spatial, partition.b, partition.a});
    return std::pair(a, b);
  });
  EXPECT_EQ(search.incumbent(), (Partition{.a = 2, .b = 3}));
}

TEST(PartitionSearch, HalvesOfTheSmsWhereKernelsSpoilEachOther) {
  PartitionSearch search(GpuModel{}, kLarge, kSmall, PartitionGoal::kTurnaround);
  epochs_until_steady(&search, [](const Partition& partition) {
    return partition.spatial ? std::pair(0.6, 0.6) : std::pair(0.3, 0.4);
  });
  EXPECT_TRUE(search.incumbent().spatial);
}

TEST(PartitionSearch, TheGoalDecides) {
  const Speeds speeds = [](const Partition& partition) {
    return partition.spatial ? std::pair(0.55, 0.55) : std::pair(0.2 * partition.a / 2, 1.1);
  };
  PartitionSearch turnaround(GpuModel{}, kLarge, kSmall, PartitionGoal::kTurnaround);
  PartitionSearch throughput(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput);
  epochs_until_steady(&turnaround, speeds);
  epochs_until_steady(&throughput, speeds);
  EXPECT_TRUE(turnaround.incumbent().spatial);
  EXPECT_EQ(throughput.incumbent(), (Partition{.a = 3, .b = 2}));
}

TEST(PartitionSearch, TriesAgainAfterAHundredEpochs) {
  PartitionSearch search(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput);
  epochs_until_steady(&search, greedy_and_modest);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(search.next(), search.incumbent());
    search.measured(0.1, 0.1);
  }
  EXPECT_FALSE(search.is_steady());
  epochs_until_steady(&search, [](const Partition& partition) {
    return partition.spatial ? std::pair(1.0, 1.0) : std::pair(0.1, 0.1);
  });
  EXPECT_TRUE(search.incumbent().spatial);
}

TEST(PartitionSearch, NonsenseChoosesNothing) {
  PartitionSearch search(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput);
  const Partition start = search.incumbent();
  for (const double wrong : {std::nan(""), -1.0, 0.0, std::numeric_limits<double>::infinity()}) {
    for (int i = 0; i < 4; ++i) search.measured(wrong, 1);
  }
  EXPECT_EQ(search.incumbent(), start);
  // A tenant that left in a trial has no speed; the trial is not chosen.
  PartitionSearch left(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput);
  epochs_until_steady(&left, [&](const Partition& partition) {
    return partition == start ? std::pair(0.4, 0.4) : std::pair(0.9, 0.0);
  });
  EXPECT_EQ(left.incumbent(), start);
}

TEST(PartitionSearch, WhatDoesNotFitIsNotTried) {
  const BlockNeeds huge{.threads = 2048, .shared = 233472};
  EXPECT_TRUE(PartitionSearch(GpuModel{}, huge, kSmall, PartitionGoal::kThroughput).impossible());
  const BlockNeeds whole{.threads = 2048};  // one on an SM, and nothing beside it
  PartitionSearch apart(GpuModel{}, whole, kSmall, PartitionGoal::kThroughput);
  EXPECT_FALSE(apart.impossible());
  EXPECT_TRUE(apart.incumbent().spatial);
  PartitionSearch from(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput, Partition{.a = 4, .b = 9});
  EXPECT_EQ(from.incumbent(), (Partition{.a = 2, .b = 4}));  // larger than the GPU
  PartitionSearch known(GpuModel{}, kLarge, kSmall, PartitionGoal::kThroughput, Partition{.a = 3, .b = 2});
  EXPECT_EQ(known.incumbent(), (Partition{.a = 3, .b = 2}));
  EXPECT_TRUE(PartitionSearch(GpuModel{.sms = 1}, whole, kSmall, PartitionGoal::kThroughput).impossible());
}

TEST(PartitionHistory, IsFoundEitherWayRound) {
  PartitionHistory history;
  EXPECT_FALSE(history.find(1, 2));
  history.keep(2, 1, {.a = 5, .b = 3});
  EXPECT_EQ(history.find(2, 1), (Partition{.a = 5, .b = 3}));
  EXPECT_EQ(history.find(1, 2), (Partition{.a = 3, .b = 5}));
}

}  // namespace
}  // namespace bandsaw::slice
