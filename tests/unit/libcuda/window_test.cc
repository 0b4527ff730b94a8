#include "guest-driver/libcuda/core/window.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::libcuda {
namespace {

TEST(Window, HandsOutRangesAndMergesThem) {
  Window window;
  ASSERT_EQ(window.reserve(VGPU_WINDOW_BASE_1), 0);
  const uint64_t a = window.take(kPage, kPage);
  const uint64_t b = window.take(4 * kPage, kPage);
  const uint64_t c = window.take(kPage, 2u << 20);
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, kPage);
  EXPECT_EQ(c % (2u << 20), 0u);
  window.give_back(a, kPage);
  window.give_back(c, kPage);
  window.give_back(b, 4 * kPage);
  EXPECT_EQ(window.take(VGPU_WINDOW_DEVICE_OFFSET, kPage), 0u) << "the whole lower half is one range again";
  EXPECT_EQ(window.take(kPage, kPage), Window::kNone);
}

TEST(Window, KeepsOthersOut) {
  Window first, second;
  ASSERT_EQ(first.reserve(VGPU_WINDOW_BASE_1), 0);
  EXPECT_EQ(second.reserve(VGPU_WINDOW_BASE_1), EEXIST);
  EXPECT_TRUE(first.holds(VGPU_WINDOW_BASE_1, VGPU_WINDOW_BYTES));
  EXPECT_FALSE(first.holds(VGPU_WINDOW_BASE_1 + 1, VGPU_WINDOW_BYTES));
  EXPECT_FALSE(first.holds(VGPU_WINDOW_BASE_1 - 1, 1));
}

TEST(Window, SaysWhereItCannotLie) {
  Window window;
  EXPECT_EQ(window.taken(), 0u);
  constexpr size_t kBytes = 4096;
  void* const wanted = reinterpret_cast<void*>(VGPU_WINDOW_BASE_1 + VGPU_WINDOW_BYTES - kBytes);
  void* const there = mmap(wanted, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(there, wanted);
  EXPECT_EQ(window.taken(), 2u);
  EXPECT_EQ(window.reserve(VGPU_WINDOW_BASE_1), EEXIST);
  munmap(there, kBytes);
  ASSERT_EQ(window.reserve(VGPU_WINDOW_BASE_2), 0);
  EXPECT_EQ(window.taken(), 3u) << "of those that a host tries first";
}

TEST(Window, OneAtTheFirstBaseAsksForNothing) {
  Window window;
  ASSERT_EQ(window.reserve(VGPU_WINDOW_BASE_0), 0);
  EXPECT_EQ(window.taken(), 0u);
}

}  // namespace
}  // namespace bandsaw::libcuda
