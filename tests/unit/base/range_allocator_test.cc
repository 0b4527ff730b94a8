#include "memory/base/range_allocator.h"

#include <gtest/gtest.h>

namespace bandsaw {
namespace {

TEST(RangeAllocator, GivesTheLowestAlignedRange) {
  RangeAllocator ranges(0x1000, 0x3000);
  EXPECT_EQ(ranges.take(0x10), 0x1000u);
  EXPECT_EQ(ranges.take(0x1000, 0x1000), 0x2000u);
  EXPECT_EQ(ranges.take(0x10, 0x10), 0x1010u);  // what alignment skipped is not lost
  EXPECT_FALSE(ranges.take(0x2000));
  EXPECT_EQ(ranges.take(0x1000), 0x3000u);
}

TEST(RangeAllocator, GivesARangeThatIsAskedFor) {
  RangeAllocator ranges(0x1000, 0x3000);
  EXPECT_TRUE(ranges.take_at(0x2000, 0x1000));
  EXPECT_FALSE(ranges.take_at(0x2800, 0x100)) << "somebody has it";
  EXPECT_FALSE(ranges.take_at(0x1800, 0x1000)) << "somebody has some of it";
  EXPECT_FALSE(ranges.take_at(0x3800, 0x1000)) << "it goes beyond the end";
  EXPECT_FALSE(ranges.take_at(0x800, 0x100));
  EXPECT_FALSE(ranges.take_at(0x1000, 0));
  EXPECT_TRUE(ranges.take_at(0x1000, 0x1000) && ranges.take_at(0x3000, 0x1000));
  for (const uint64_t start : {0x1000, 0x2000, 0x3000}) ranges.give_back(start, 0x1000);
  EXPECT_TRUE(ranges.untouched());
}

TEST(RangeAllocator, JoinsWhatComesBack) {
  RangeAllocator ranges(0, 0x300);
  EXPECT_TRUE(ranges.untouched());
  for (uint64_t at = 0; at < 0x300; at += 0x100) EXPECT_EQ(ranges.take(0x100), at);
  EXPECT_FALSE(ranges.take(1));
  ranges.give_back(0, 0x100);
  ranges.give_back(0x200, 0x100);
  EXPECT_FALSE(ranges.take(0x200));
  ranges.give_back(0x100, 0x100);
  EXPECT_TRUE(ranges.untouched());
  EXPECT_EQ(ranges.take(0x300), 0u);
}

}  // namespace
}  // namespace bandsaw
