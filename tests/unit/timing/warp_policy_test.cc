#include "backend/device/soft/timing/warp_policy.h"

#include <gtest/gtest.h>

namespace bandsaw::soft::timing {
namespace {

// Warps by slot, as old as their slots are low, all ready.
std::vector<WarpView> warps(size_t count) {
  std::vector<WarpView> made;
  for (uint32_t i = 0; i < count; ++i) made.push_back({i, 100 + i, 10, true, false});
  return made;
}

TEST(WarpPolicy, RoundRobinPassesOverWhoIsNotReady) {
  const auto policy = make_warp_policy("lrr");
  auto all = warps(3);
  EXPECT_EQ(policy->pick(all), 0u);
  EXPECT_EQ(policy->pick(all), 1u);
  all[2].ready = false;
  EXPECT_EQ(policy->pick(all), 0u);
  all[2].ready = true;
  all[1].ready = false;
  EXPECT_EQ(policy->pick(all), 2u);
}

TEST(WarpPolicy, GreedyStaysThenTakesTheOldest) {
  const auto policy = make_warp_policy("gto");
  auto all = warps(3);
  all[0].ready = false;
  EXPECT_EQ(policy->pick(all), 1u);
  all[0].ready = true;
  EXPECT_EQ(policy->pick(all), 1u);
  all[1].ready = false;
  EXPECT_EQ(policy->pick(all), 0u);
}

TEST(WarpPolicy, EarliestLoadGoesFirst) {
  const auto policy = make_warp_policy("elf");
  auto all = warps(3);
  all[2].distance = 3;
  EXPECT_EQ(policy->pick(all), 2u);
  all[2].distance = 10;  // all alike: the last one goes on
  EXPECT_EQ(policy->pick(all), 2u);
  all[1].distance = 0;
  EXPECT_EQ(policy->pick(all), 1u);
  all[1].ready = false;
  EXPECT_EQ(policy->pick(all), 0u);
}

TEST(WarpPolicy, TwoLevelLeavesAGroupOnlyWhenAllOfItWait) {
  const auto policy = make_warp_policy("two-level");
  auto all = warps(16);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(policy->pick(all), i);
  for (size_t i = 0; i < 8; ++i) all[i].ready = false;
  EXPECT_EQ(policy->pick(all), std::nullopt);  // they compute
  for (size_t i = 0; i < 8; ++i) all[i].waits = true;
  EXPECT_EQ(policy->pick(all), 8u);
  all[0].waits = false;
  all[0].ready = true;
  EXPECT_EQ(policy->pick(all), 9u);  // the second group goes on
}

TEST(WarpPolicy, NobodyReadyIsNobody) {
  for (const std::string& name : warp_policy_names()) {
    auto all = warps(2);
    for (WarpView& warp : all) warp.ready = false;
    EXPECT_EQ(make_warp_policy(name)->pick(all), std::nullopt) << name;
    EXPECT_EQ(make_warp_policy(name)->pick({}), std::nullopt) << name;
  }
  EXPECT_EQ(make_warp_policy("none"), nullptr);
}

}  // namespace
}  // namespace bandsaw::soft::timing
