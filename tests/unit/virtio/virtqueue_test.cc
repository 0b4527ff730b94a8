#include "hypervisor/virtio/virtqueue.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::virtio {
namespace {

constexpr uint64_t kBase = 0x100000, kBytes = 4 << 20;
constexpr uint64_t kAvailable = kBase + 0x2000, kUsed = kBase + 0x4000, kTable = kBase + 0x8000,
                   kData = kBase + 0x40000;

class VirtqueueTest : public testing::Test {
 protected:
  VirtqueueTest() : ram_(kBase, kBytes) {
    EXPECT_TRUE(memory_.add(kBase, kBytes, ram_.dup_fd().get(), 0, true).ok());
    start(8, true, true);
  }
  void start(uint16_t size, bool event_index, bool indirect) {
    queue_.reset();
    queue_.setup() = {size, kBase, kAvailable, kUsed};
    size_ = size;
    ASSERT_TRUE(queue_.enable(event_index, indirect).ok());
  }
  vring_desc& descriptor(int i) { return ram_.at<vring_desc>(kBase)[i]; }
  vring_desc& indirect(int i) { return ram_.at<vring_desc>(kTable)[i]; }
  void offer(uint16_t head) {
    uint16_t* ring = ram_.at<uint16_t>(kAvailable);
    ring[2 + ring[1] % size_] = head;
    ++ring[1];
  }
  // Offers descriptor 0 and expects the queue to refuse it.
  void expect_broken(const char* why) {
    offer(0);
    std::optional<Chain> chain;
    const Status status = queue_.pop(1 << 20, chain);
    EXPECT_EQ(status.code(), EPROTO);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    EXPECT_FALSE(chain);
  }
  Chain take() {
    std::optional<Chain> chain;
    const Status status = queue_.pop(1 << 20, chain);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(chain);
    return chain ? *chain : Chain{};
  }

  FakeRam ram_;
  GuestMemory memory_;
  Virtqueue queue_{memory_};
  uint16_t size_ = 0;
};

TEST_F(VirtqueueTest, CopiesAChainAndGivesItBack) {
  std::memcpy(ram_.at<char>(kData), "hello", 5);
  std::memcpy(ram_.at<char>(kData + 100), " guest", 6);
  descriptor(3) = {kData, 5, VRING_DESC_F_NEXT, 6};
  descriptor(6) = {kData + 100, 6, VRING_DESC_F_NEXT, 1};
  descriptor(1) = {kData + 200, 4, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 2};
  descriptor(2) = {kData + 300, 100, VRING_DESC_F_WRITE, 0};
  offer(3);
  const Chain chain = take();
  EXPECT_EQ(std::string(chain.readable.begin(), chain.readable.end()), "hello guest");
  EXPECT_EQ(chain.writable_bytes, 104u);
  bool notify = false;
  const uint8_t reply[] = "replied";
  ASSERT_TRUE(queue_.push(chain, {reply, 7}, notify).ok());
  EXPECT_TRUE(notify);
  EXPECT_EQ(std::memcmp(ram_.at<char>(kData + 200), "repl", 4), 0);
  EXPECT_EQ(std::memcmp(ram_.at<char>(kData + 300), "ied", 3), 0);
  EXPECT_EQ(ram_.at<uint16_t>(kUsed)[1], 1);
  EXPECT_EQ(ram_.at<uint32_t>(kUsed)[1], 3u);  // head
  EXPECT_EQ(ram_.at<uint32_t>(kUsed)[2], 7u);  // length
}

TEST_F(VirtqueueTest, ReadsTheLargestRequestThroughAnIndirectTable) {
  const uint64_t bytes = sizeof(vgpu_ctl_add_region) + uint64_t{VGPU_SEGMENTS_MAX} * sizeof(vgpu_segment);
  constexpr int kPieces = 257;
  for (int i = 0; i < kPieces; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * 4096;
    indirect(i) = {kData + at, static_cast<uint32_t>(std::min<uint64_t>(4096, bytes - at)), VRING_DESC_F_NEXT,
                   static_cast<uint16_t>(i + 1)};
  }
  indirect(kPieces) = {kBase + 0x7000, sizeof(vgpu_ctl_reply), VRING_DESC_F_WRITE, 0};
  descriptor(0) = {kTable, (kPieces + 1) * 16, VRING_DESC_F_INDIRECT, 0};
  *ram_.at<uint8_t>(kData + bytes - 1) = 0x5a;
  offer(0);
  std::optional<Chain> chain;
  ASSERT_TRUE(queue_.pop(kRequestMaxBytes, chain).ok());
  ASSERT_TRUE(chain && !chain->oversized);
  EXPECT_EQ(chain->readable.size(), bytes);
  EXPECT_EQ(chain->readable.back(), 0x5a);
  bool notify = false;
  ASSERT_TRUE(queue_.push(*chain, {}, notify).ok());
  offer(0);
  ASSERT_TRUE(queue_.pop(bytes - 1, chain).ok());
  ASSERT_TRUE(chain && chain->oversized);
  EXPECT_TRUE(chain->readable.empty());
}

TEST_F(VirtqueueTest, RefusesLoopsAndLongChains) {
  descriptor(0) = {kData, 1, VRING_DESC_F_NEXT, 1};
  descriptor(1) = {kData, 1, VRING_DESC_F_NEXT, 0};
  expect_broken("loop");
  start(8, true, true);
  descriptor(0) = {kTable, 2000 * 16, VRING_DESC_F_INDIRECT, 0};
  for (int i = 0; i < 2000; ++i) indirect(i) = {kData, 1, VRING_DESC_F_NEXT, static_cast<uint16_t>(i + 1)};
  expect_broken("too long");
}

TEST_F(VirtqueueTest, RefusesBadDescriptors) {
  struct Case {
    const char* why;
    vring_desc first;
  };
  const Case cases[] = {
      {"outside guest RAM", {kBase - 1, 2, 0, 0}},
      {"outside guest RAM", {kBase + kBytes - 1, 2, 0, 0}},
      {"outside guest RAM", {UINT64_MAX, 2, 0, 0}},
      {"outside guest RAM", {UINT64_MAX - 3, 8, VRING_DESC_F_WRITE, 0}},
      {"outside guest RAM", {kData, UINT32_MAX, 0, 0}},
      {"out of range", {kData, 1, VRING_DESC_F_NEXT, 8}},
      {"odd length", {kTable, 17, VRING_DESC_F_INDIRECT, 0}},
      {"odd length", {kTable, 0, VRING_DESC_F_INDIRECT, 0}},
      {"misplaced", {kTable, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 1}},
      {"table outside", {kBase + kBytes - 16, 32, VRING_DESC_F_INDIRECT, 0}},
      {"table outside", {UINT64_MAX - 15, 32, VRING_DESC_F_INDIRECT, 0}},
  };
  for (const Case& one : cases) {
    start(8, true, true);
    std::memset(ram_.at<uint8_t>(kAvailable), 0, 64);
    descriptor(0) = one.first;
    expect_broken(one.why);
  }
}

TEST_F(VirtqueueTest, RefusesNestedAndUnwantedIndirectTables) {
  descriptor(0) = {kTable, 16, VRING_DESC_F_INDIRECT, 0};
  indirect(0) = {kTable, 16, VRING_DESC_F_INDIRECT, 0};
  expect_broken("misplaced");
  std::memset(ram_.at<uint8_t>(kAvailable), 0, 64);
  start(8, true, false);
  indirect(0) = {kData, 1, 0, 0};
  expect_broken("misplaced");
}

TEST_F(VirtqueueTest, RefusesReadableAfterWritable) {
  descriptor(0) = {kData, 4, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1};
  descriptor(1) = {kData, 4, 0, 0};
  expect_broken("after a writable");
}

TEST_F(VirtqueueTest, RefusesRunawayIndices) {
  ram_.at<uint16_t>(kAvailable)[1] = 9;
  std::optional<Chain> chain;
  EXPECT_EQ(queue_.pop(16, chain).code(), EPROTO);
  std::memset(ram_.at<uint8_t>(kAvailable), 0, 64);
  start(8, true, true);
  // The same descriptor again and again, never used: more in flight than there are descriptors.
  descriptor(0) = {kData, 1, 0, 0};
  for (int i = 0; i < 8; ++i) {
    offer(0);
    take();
  }
  expect_broken("more chains");
}

TEST_F(VirtqueueTest, CrossesRegionsAndNoticesWhenTheyGo) {
  FakeRam more(kBase + kBytes, 0x10000);
  ASSERT_TRUE(memory_.add(more.gpa(), more.bytes(), more.dup_fd().get(), 0, true).ok());
  std::memcpy(ram_.at<char>(kBase + kBytes - 3), "abc", 3);
  std::memcpy(more.at<char>(more.gpa()), "def", 3);
  descriptor(0) = {more.gpa() - 3, 6, VRING_DESC_F_NEXT, 1};
  descriptor(1) = {more.gpa() + 16, 8, VRING_DESC_F_WRITE, 0};
  offer(0);
  const Chain chain = take();
  EXPECT_EQ(std::string(chain.readable.begin(), chain.readable.end()), "abcdef");
  ASSERT_TRUE(memory_.remove(more.gpa(), more.bytes()).ok());
  bool notify = false;
  EXPECT_EQ(queue_.push(chain, std::vector<uint8_t>(8), notify).code(), EPROTO);
  expect_broken("outside guest RAM");
}

TEST_F(VirtqueueTest, RefusesBadRings) {
  struct Case {
    Virtqueue::Setup setup;
    int code;
  };
  const Case cases[] = {
      {{0, kBase, kAvailable, kUsed}, EINVAL},
      {{6, kBase, kAvailable, kUsed}, EINVAL},
      {{1024, kBase, kAvailable, kUsed}, EINVAL},
      {{8, kBase + 8, kAvailable, kUsed}, EPROTO},
      {{8, kBase, kAvailable + 1, kUsed}, EPROTO},
      {{8, kBase, kAvailable, kUsed + 2}, EPROTO},
      {{8, 0, kAvailable, kUsed}, EPROTO},
      {{8, kBase + kBytes - 64, kAvailable, kUsed}, EPROTO},
      {{8, kBase, kBase + kBytes - 20, kUsed}, EPROTO},
      {{8, kBase, kAvailable, UINT64_MAX - 3}, EPROTO},
  };
  for (const Case& one : cases) {
    queue_.reset();
    queue_.setup() = one.setup;
    EXPECT_EQ(queue_.enable(true, true).code(), one.code);
    EXPECT_FALSE(queue_.enabled());
  }
}

TEST_F(VirtqueueTest, SuppressesInterruptsByEventIndex) {
  descriptor(0) = {kData, 8, VRING_DESC_F_WRITE, 0};
  uint16_t& used_event = ram_.at<uint16_t>(kAvailable)[2 + 8];
  used_event = 2;  // the third buffer
  const bool expected[] = {false, false, true, false};
  for (bool want : expected) {
    offer(0);
    bool notify = false;
    ASSERT_TRUE(queue_.push(take(), {}, notify).ok());
    EXPECT_EQ(notify, want);
  }
  bool more = true;
  ASSERT_TRUE(queue_.want_kicks(true, more).ok());
  EXPECT_FALSE(more);
  EXPECT_EQ(ram_.at<uint16_t>(kUsed)[2 + 4 * 8], 4);
  offer(0);
  ASSERT_TRUE(queue_.want_kicks(true, more).ok());
  EXPECT_TRUE(more);
}

TEST_F(VirtqueueTest, SuppressesInterruptsByFlag) {
  start(8, false, true);
  descriptor(0) = {kData, 8, VRING_DESC_F_WRITE, 0};
  for (uint16_t flag : {0, 1}) {
    ram_.at<uint16_t>(kAvailable)[0] = flag;
    offer(0);
    bool notify = false;
    ASSERT_TRUE(queue_.push(take(), {}, notify).ok());
    EXPECT_EQ(notify, flag == 0);
  }
  bool more = false;
  ASSERT_TRUE(queue_.want_kicks(false, more).ok());
  EXPECT_EQ(ram_.at<uint16_t>(kUsed)[0], VRING_USED_F_NO_NOTIFY);
}

TEST_F(VirtqueueTest, WrapsAround) {
  descriptor(0) = {kData, 1, VRING_DESC_F_NEXT, 1};
  descriptor(1) = {kData + 64, 8, VRING_DESC_F_WRITE, 0};
  for (int i = 0; i < 70000; ++i) {
    offer(0);
    bool notify = false;
    ASSERT_TRUE(queue_.push(take(), {}, notify).ok());
  }
  EXPECT_EQ(ram_.at<uint16_t>(kUsed)[1], static_cast<uint16_t>(70000));
}

}  // namespace
}  // namespace bandsaw::virtio
