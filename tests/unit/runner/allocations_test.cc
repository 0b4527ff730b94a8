#include "backend/runner/slicing/allocations.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

TEST(Allocations, AreFoundByAnyAddressInThem) {
  Allocations all;
  all.add(0x2000, 0x100);
  all.add(0x1000, 0x1000);  // up to the other
  const std::pair<uint64_t, uint64_t> first{0x1000, 0x2000}, second{0x2000, 0x2100};
  const auto found = [&](uint64_t address) {
    const auto range = all.find(address);
    EXPECT_TRUE(range);
    return range ? std::pair(range->begin, range->end) : std::pair<uint64_t, uint64_t>();
  };
  EXPECT_FALSE(all.find(0xfff));
  EXPECT_EQ(found(0x1000), first);
  EXPECT_EQ(found(0x1fff), first);
  EXPECT_EQ(found(0x2000), second);
  EXPECT_EQ(found(0x20ff), second);
  EXPECT_FALSE(all.find(0x2100));
  all.remove(0x1000);
  EXPECT_FALSE(all.find(0x1fff));
  EXPECT_EQ(found(0x2000), second);
  all.clear();
  EXPECT_FALSE(all.find(0x2000));
}

}  // namespace
}  // namespace bandsaw::runner
