#include "hypervisor/virtio/guest_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::virtio {
namespace {

constexpr uint64_t kPage = 4096;

std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 7 + 1);
  return data;
}

class GuestMemoryTest : public testing::Test {
 protected:
  // Two adjoining ranges (of different files), a hole, and one that is read-only.
  GuestMemoryTest() : first_(0, 2 * kPage), second_(2 * kPage, kPage), third_(8 * kPage, kPage) {
    EXPECT_TRUE(memory_.add(0, 2 * kPage, first_.dup_fd().get(), 0, true).ok());
    EXPECT_TRUE(memory_.add(2 * kPage, kPage, second_.dup_fd().get(), 0, true).ok());
    EXPECT_TRUE(memory_.add(8 * kPage, kPage, third_.dup_fd().get(), 0, false).ok());
    EXPECT_TRUE(memory_.add(9 * kPage, kPage, -1, 0, true).ok());
  }
  GuestMemory memory_;
  FakeRam first_, second_, third_;
};

TEST_F(GuestMemoryTest, CopiesAcrossAdjoiningRanges) {
  const auto data = pattern(2 * kPage);
  ASSERT_TRUE(memory_.write(kPage, data));
  EXPECT_EQ(std::memcmp(first_.at<uint8_t>(kPage), data.data(), kPage), 0);
  EXPECT_EQ(std::memcmp(second_.at<uint8_t>(2 * kPage), data.data() + kPage, kPage), 0);
  std::vector<uint8_t> back(2 * kPage);
  ASSERT_TRUE(memory_.read(kPage, back));
  EXPECT_EQ(back, data);
}

TEST_F(GuestMemoryTest, RefusesEveryEdge) {
  EXPECT_TRUE(memory_.contains(3 * kPage - 1, 1, true));
  EXPECT_FALSE(memory_.contains(3 * kPage - 1, 2, false));  // one byte too far
  EXPECT_FALSE(memory_.contains(3 * kPage, 1, false));
  EXPECT_FALSE(memory_.contains(8 * kPage - 1, 2, false));  // one byte too early
  EXPECT_TRUE(memory_.contains(8 * kPage, kPage, false));
  EXPECT_FALSE(memory_.contains(8 * kPage, 1, true));   // read-only
  EXPECT_FALSE(memory_.contains(9 * kPage, 1, false));  // not shared
  EXPECT_FALSE(memory_.contains(8 * kPage, kPage + 1, false));
  EXPECT_FALSE(memory_.contains(UINT64_MAX, 1, false));
  EXPECT_FALSE(memory_.contains(UINT64_MAX - 1, 8, false));
  EXPECT_FALSE(memory_.contains(kPage, UINT64_MAX, false));
  EXPECT_TRUE(memory_.contains(UINT64_MAX, 0, true));  // nothing is nowhere
}

TEST_F(GuestMemoryTest, RefusesBadRanges) {
  const UniqueFd fd = first_.dup_fd();
  EXPECT_EQ(memory_.add(kPage, kPage, fd.get(), 0, true).status().code(), EEXIST);
  EXPECT_EQ(memory_.add(2 * kPage, 8 * kPage, fd.get(), 0, true).status().code(), EEXIST);
  EXPECT_EQ(memory_.add(16 * kPage, 0, fd.get(), 0, true).status().code(), EINVAL);
  EXPECT_EQ(memory_.add(16 * kPage + 1, kPage, fd.get(), 0, true).status().code(), EINVAL);
  EXPECT_EQ(memory_.add(16 * kPage, 100, fd.get(), 0, true).status().code(), EINVAL);
  EXPECT_EQ(memory_.add(~(kPage - 1), 2 * kPage, fd.get(), 0, true).status().code(), EINVAL);
  EXPECT_EQ(memory_.add(16 * kPage, 3 * kPage, fd.get(), 0, true).status().code(), EINVAL);  // past the file
  EXPECT_EQ(memory_.add(16 * kPage, kPage, fd.get(), 2 * kPage, true).status().code(), EINVAL);
  EXPECT_EQ(memory_.add(16 * kPage, kPage, fd.get(), ~(kPage - 1), true).status().code(), EINVAL);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  EXPECT_EQ(memory_.add(16 * kPage, kPage, pipe_fds[0], 0, true).status().code(), EINVAL);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  EXPECT_EQ(memory_.ranges().size(), 4u);
}

TEST_F(GuestMemoryTest, ForgetsRemovedRanges) {
  EXPECT_EQ(memory_.remove(0, kPage).code(), ENOENT);  // a part
  EXPECT_TRUE(memory_.remove(2 * kPage, kPage).ok());
  uint16_t word = 0;
  EXPECT_TRUE(memory_.load16(2 * kPage - 2, word));
  EXPECT_FALSE(memory_.load16(2 * kPage, word));
  EXPECT_FALSE(memory_.load16(1, word));  // odd
  EXPECT_FALSE(memory_.store16(8 * kPage, 1));
  EXPECT_TRUE(memory_.add(2 * kPage, kPage, second_.dup_fd().get(), 0, true).ok());
}

}  // namespace
}  // namespace bandsaw::virtio
