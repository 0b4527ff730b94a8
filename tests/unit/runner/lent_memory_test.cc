#include "backend/runner/objects/lent_memory.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kSlab = 0x200000, kFirst = kSlab + 512, kSecond = kSlab + 1024, kContext = 5;
constexpr ExchangeKey kKey{1, 2, 3};

TEST(LentMemoryTest, ItIsLentUntilTheLastAllocationInItIsFreed) {
  LentMemory lent;
  EXPECT_EQ(lent.find(kSlab, kFirst, kContext), std::nullopt);
  ASSERT_TRUE(lent.add(kSlab, kKey));
  EXPECT_FALSE(lent.add(kSlab, ExchangeKey{9})) << "it has a key";
  EXPECT_EQ(lent.find(kSlab, kFirst, kContext), kKey);
  EXPECT_EQ(lent.find(kSlab, kFirst, kContext), kKey) << "counted once";
  EXPECT_EQ(lent.find(kSlab, kSecond, kContext), kKey);
  EXPECT_EQ(lent.remove(kFirst), std::nullopt);
  EXPECT_EQ(lent.remove(kFirst), std::nullopt);
  EXPECT_EQ(lent.remove(kSecond), kKey);
  EXPECT_EQ(lent.find(kSlab, kSecond, kContext), std::nullopt);
}

TEST(LentMemoryTest, AContextsEndEndsWhatIsItsOwn) {
  LentMemory lent;
  lent.add(kSlab, kKey);
  lent.find(kSlab, kFirst, kContext);
  lent.find(kSlab, kSecond, kContext + 1);
  EXPECT_EQ(lent.any_of(kContext), kFirst);
  EXPECT_EQ(lent.remove(kFirst), std::nullopt);
  EXPECT_EQ(lent.any_of(kContext), std::nullopt);
  EXPECT_EQ(lent.any_of(kContext + 1), kSecond);
}

}  // namespace
}  // namespace bandsaw::runner
