#include "guest-driver/libcuda/api/address_map.h"

#include <gtest/gtest.h>

namespace bandsaw::libcuda {
namespace {

Range range(uint64_t base, uint64_t bytes) { return {.base = base, .bytes = bytes}; }

TEST(AddressMap, FindsTheRangeThatHoldsAnAddress) {
  AddressMap map;
  map.add(range(0x1000, 0x100));
  map.add(range(0x2000, 1));
  EXPECT_FALSE(map.find(0xfff));
  EXPECT_EQ(map.find(0x1000)->base, 0x1000u);
  EXPECT_EQ(map.find(0x10ff)->base, 0x1000u);
  EXPECT_FALSE(map.find(0x1100));
  EXPECT_EQ(map.find(0x2000)->base, 0x2000u);
  EXPECT_FALSE(map.find(0x2001));
}

TEST(AddressMap, NeighbouringMappingsAreOneToACopy) {
  AddressMap map;
  Range first = range(0x1000, 0x100), second = range(0x1100, 0x100), apart = range(0x1300, 0x100);
  for (Range* mapping : {&first, &second, &apart}) {
    mapping->kind = RangeKind::kMapped;
    map.add(*mapping);
  }
  EXPECT_TRUE(map.covers(first, 0x1010, 0x20));
  EXPECT_TRUE(map.covers(first, 0x1010, 0x1f0));
  EXPECT_FALSE(map.covers(first, 0x1010, 0x1f1));
  EXPECT_FALSE(map.covers(first, 0x1010, ~0ull));
  Range plain = range(0x1200, 0x100);
  map.add(plain);
  EXPECT_FALSE(map.covers(second, 0x1100, 0x101)) << "the neighbour is no mapping";
  EXPECT_FALSE(map.covers(plain, 0x1200, 0x101));
}

TEST(AddressMap, HoldsMindsLengthAndOverflow) {
  const Range some = range(0x1000, 0x100);
  EXPECT_TRUE(some.holds(0x1000, 0x100));
  EXPECT_TRUE(some.holds(0x1100, 0));
  EXPECT_FALSE(some.holds(0x1001, 0x100));
  EXPECT_FALSE(some.holds(0xfff, 1));
  EXPECT_FALSE(some.holds(0x1080, ~0ull));
}

TEST(AddressMap, ANewRangeReplacesStaleOnes) {
  AddressMap map;
  map.add(range(0x1000, 0x1000));
  map.add(range(0x3000, 0x1000));
  map.add(range(0x1800, 0x2000));
  EXPECT_FALSE(map.find(0x1000));
  EXPECT_EQ(map.find(0x37ff)->base, 0x1800u);
  EXPECT_FALSE(map.find(0x3800));
}

TEST(AddressMap, IdsAreNeverUsedTwice) {
  AddressMap map;
  map.add(range(0x1000, 1));
  const uint64_t first = map.find(0x1000)->id;
  const Range freed = *map.find(0x1000);
  map.add(freed);  // another thread got the address while the first one's free was under way
  map.forget(freed);
  EXPECT_TRUE(map.find(0x1000));
  EXPECT_TRUE(map.remove(0x1000));
  EXPECT_FALSE(map.remove(0x1000));
  map.add(range(0x1000, 1));
  EXPECT_NE(map.find(0x1000)->id, first);
}

TEST(AddressMap, RemovesByPredicateAndUpdatesInPlace) {
  AddressMap map;
  map.add(range(0x1000, 0x10));
  map.add(range(0x2000, 0x10));
  EXPECT_TRUE(map.update(0x1008, [](Range& some) { some.context = 7; }));
  EXPECT_FALSE(map.update(0x3000, [](Range&) {}));
  map.remove_if([](const Range& some) { return some.context == 7; });
  EXPECT_FALSE(map.find(0x1000));
  EXPECT_TRUE(map.find(0x2000));
}

}  // namespace
}  // namespace bandsaw::libcuda
