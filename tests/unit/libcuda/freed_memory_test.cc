#include "guest-driver/libcuda/api/freed_memory.h"

#include <gtest/gtest.h>

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kPool = 7, kStream = 9, kContext = 3;

FreedBlock block(uint64_t base, uint64_t bytes, uint64_t stream = kStream) {
  return {base, bytes, kPool, stream, kContext};
}

TEST(FreedMemory, ComesBackToItsOwnStreamAndPool) {
  FreedMemory freed;
  EXPECT_TRUE(freed.keep(block(4096, 1000)).empty());
  EXPECT_EQ(freed.take(block(0, 1000, kStream + 1)), 0u);
  EXPECT_EQ(freed.take({0, 1000, kPool + 1, kStream, kContext}), 0u);
  EXPECT_EQ(freed.take({0, 1000, kPool, kStream, kContext + 1}), 0u);
  EXPECT_EQ(freed.take(block(0, 1000)), 4096u);
  EXPECT_EQ(freed.take(block(0, 1000)), 0u);
}

TEST(FreedMemory, IsNeverLargerThanWasAllocatedAndNotMuchLarger) {
  FreedMemory freed;
  freed.keep(block(4096, 900));
  EXPECT_EQ(freed.take(block(0, 901)), 0u);  // the same unit of the pool, but the host knows of 900 bytes
  EXPECT_EQ(freed.take(block(0, 512)), 0u);
  EXPECT_EQ(freed.take(block(0, 600)), 4096u);
}

TEST(FreedMemory, TheOneFreedLastIsTheFirst) {
  FreedMemory freed;
  freed.keep(block(4096, 256));
  freed.keep(block(8192, 256));
  EXPECT_EQ(freed.take(block(0, 256)), 8192u);
  EXPECT_EQ(freed.take(block(0, 256)), 4096u);
}

TEST(FreedMemory, OldBlocksGoWhereThereIsTooMuch) {
  FreedMemory freed;
  for (uint64_t i = 1; i <= FreedMemory::kBlocksMost; ++i) EXPECT_TRUE(freed.keep(block(i << 20, 256)).empty());
  const auto gone = freed.keep(block(1, 512));
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].base, 1u << 20);
}

TEST(FreedMemory, LargeBlocksTakeThePlaceOfOlderOnesOrGo) {
  FreedMemory freed;
  EXPECT_EQ(freed.keep(block(1 << 30, FreedMemory::kBlockMost + 1)).size(), 1u);
  EXPECT_TRUE(freed.keep(block(1 << 30, FreedMemory::kBlockMost)).empty());
  EXPECT_TRUE(freed.keep(block(2ull << 30, FreedMemory::kBlockMost)).empty());
  EXPECT_EQ(freed.keep(block(3ull << 30, FreedMemory::kBlockMost)).size(), 1u);
  EXPECT_EQ(freed.take(block(0, FreedMemory::kBlockMost)), 3ull << 30);
}

TEST(FreedMemory, GoesInTheOrderOfItsFreeing) {
  FreedMemory freed;
  freed.keep(block(1 << 20, 256));
  freed.keep(block(2 << 20, 256, kStream + 1));
  freed.keep(block(3 << 20, 256));
  const auto gone = freed.remove_if([](const FreedBlock& block) { return block.stream == kStream; });
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_EQ(gone[0].base, 1u << 20);
  EXPECT_EQ(gone[1].base, 3u << 20);
  EXPECT_EQ(freed.take(block(0, 256, kStream + 1)), 2u << 20);
}

}  // namespace
}  // namespace bandsaw::libcuda
