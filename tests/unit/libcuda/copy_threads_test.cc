#include "guest-driver/libcuda/api/copy_threads.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace bandsaw::libcuda {
namespace {

// Lengths that divide among the threads evenly, unevenly, and evenly but for a few bytes.
TEST(CopyThreads, CopiesEveryByteAndNoMore) {
  CopyThreads& threads = *new CopyThreads(3);
  constexpr size_t kMost = 600000, kGuard = 64;
  std::vector<unsigned char> from(kMost), to(kMost + 2 * kGuard);
  for (size_t i = 0; i < kMost; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 251);
  for (const size_t bytes : {size_t{100}, size_t{1} << 18, size_t{262145}, size_t{457473}, size_t{457475}, kMost}) {
    for (const bool streaming : {false, true}) {
      std::fill(to.begin(), to.end(), 0xee);
      threads.copy(to.data() + kGuard + 3, from.data(), bytes, streaming);
      ASSERT_EQ(std::memcmp(to.data() + kGuard + 3, from.data(), bytes), 0) << bytes;
      ASSERT_EQ(to[kGuard + 2], 0xee);
      ASSERT_EQ(to[kGuard + 3 + bytes], 0xee);
    }
  }
}

}  // namespace
}  // namespace bandsaw::libcuda
