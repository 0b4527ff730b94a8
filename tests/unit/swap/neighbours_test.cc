#include "memory/swap/neighbours.h"

#include <gtest/gtest.h>

#include <array>

namespace bandsaw::swap {
namespace {

constexpr int64_t kNow = 1'000'000'000;

TEST(Neighbours, WhoHasRestedForLongestGives) {
  const std::array<Neighbour, 4> all{{{0, kNow}, {10, kNow - 2 * kRests}, {10, kNow - 3 * kRests}, {100, kNow}}};
  EXPECT_EQ(who_gives(all, 0, false, kNow), 2u);
  EXPECT_EQ(who_gives(all, 2, false, kNow), 1u);
}

TEST(Neighbours, OfThoseThatWorkWhoHasMoreThanItsPartGivesToWhoHasLess) {
  const std::array<Neighbour, 3> all{{{5, kNow}, {60, kNow}, {25, kNow}}};
  EXPECT_EQ(who_gives(all, 0, false, kNow), 1u);
  EXPECT_EQ(who_gives(all, 2, false, kNow), 1u);
  EXPECT_EQ(who_gives(all, 1, false, kNow), kNobody);
  EXPECT_EQ(who_gives(all, 1, true, kNow), 2u);
  const std::array<Neighbour, 2> equal{{{30, kNow}, {30, kNow}}};
  EXPECT_EQ(who_gives(equal, 0, false, kNow), kNobody);
}

TEST(Neighbours, NobodyHasAnything) {
  const std::array<Neighbour, 3> all{{{5, kNow}, {0, 0}, {0, kNow}}};
  EXPECT_EQ(who_gives(all, 0, true, kNow), kNobody);
}

}  // namespace
}  // namespace bandsaw::swap
