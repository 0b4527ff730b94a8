// Which GPUs the driver is told of when a process comes back on another one.
#include "backend/runner/checkpointer.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace bandsaw::runner {
namespace {

TEST(PairsForMoveTest, TheTwoChangePlacesAndTheOthersStay) {
  const auto pairs = pairs_for_move("GPU-c", "GPU-a", {"GPU-a", "GPU-b", "GPU-c"});
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  ASSERT_EQ(pairs.value().size(), 3u) << "the driver wants each GPU of the host";
  const char* const to[] = {"GPU-c", "GPU-b", "GPU-a"};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(pairs.value()[i].to, to[i]) << pairs.value()[i].from;
}

TEST(PairsForMoveTest, AGpuThatTheHostLacks) {
  EXPECT_EQ(pairs_for_move("GPU-a", "GPU-c", {"GPU-a", "GPU-b"}).status().code(), EINVAL);
  EXPECT_EQ(pairs_for_move("GPU-c", "GPU-a", {"GPU-a", "GPU-b"}).status().code(), EINVAL);
}

}  // namespace
}  // namespace bandsaw::runner
