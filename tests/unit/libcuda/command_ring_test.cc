// The guest's end of a command ring against a consumer that behaves as the runner does, and against none.
#include "guest-driver/libcuda/core/command_ring.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "guest-driver/libcuda/core/transport.h"

namespace bandsaw::libcuda {
namespace {

class FakeTransport : public Transport {
 public:
  uint64_t window_base() const override { return 0; }
  int add_ring(vgpu_ring_header** ring) override {
    if (!rings_allowed) return ENOSPC;
    rings_allowed--;
    memory.push_back(std::make_unique<Memory>());
    *ring = reinterpret_cast<vgpu_ring_header*>(memory.back()->bytes);
    return 0;
  }
  int allocate(uint64_t, uint32_t, SharedBlock*) override { return ENOMEM; }
  int release(const SharedBlock&) override { return 0; }
  int pin(void*, uint64_t, uint32_t, SharedBlock*) override { return ENOTSUP; }
  int unpin(const SharedBlock&) override { return 0; }
  int also(const SharedBlock&, SharedBlock*) override { return ENOTSUP; }
  void kick() override { kicks++; }
  int wait(vgpu_ring_header*, uint64_t*, uint32_t) override {
    std::this_thread::yield();
    return lost ? EPIPE : 0;
  }
  uint64_t snapshot(vgpu_ring_header*) override { return 0; }
  bool alive() override { return !lost; }
  void forget_in_child() override {}

  struct Memory {
    alignas(4096) char bytes[VGPU_RING_BYTES] = {};
  };
  int rings_allowed = 1;
  std::atomic<int> kicks{0};
  std::atomic<bool> lost{false};
  std::vector<std::unique_ptr<Memory>> memory;
};

struct CommandRingTest : testing::Test {
  CommandRingTest() {
    transport.add_ring(&header);
    ring = std::make_unique<CommandRing>(header, &transport, &next_seq);
  }
  char* records() { return reinterpret_cast<char*>(header) + VGPU_RING_RECORDS_OFFSET; }

  // Publishes a record whose payload says its own length and number.
  uint64_t publish(uint32_t payload, uint32_t number) {
    auto* words = static_cast<uint32_t*>(ring->reserve(3, payload, 77));
    if (!words) return 0;
    words[0] = payload;
    words[1] = number;
    return ring->publish();
  }

  // Takes the next record as the runner would; false when there is none.
  bool take(std::vector<char>* record) {
    std::atomic_ref<__u64> tail(header->tail);
    std::atomic_ref<__u64> shared_head(header->head);
    while (head != tail.load(std::memory_order_acquire)) {
      const uint64_t at = head % VGPU_RING_RECORDS_BYTES;
      vgpu_record front;
      std::memcpy(&front, records() + at, 8);
      EXPECT_EQ(front.bytes % VGPU_RECORD_ALIGN, 0u);
      EXPECT_LE(front.bytes, VGPU_RING_RECORDS_BYTES - at) << "a record crosses the record area's end";
      if (front.opcode == VGPU_OPCODE_PAD) {
        EXPECT_EQ(front.bytes, VGPU_RING_RECORDS_BYTES - at);
      } else {
        record->assign(records() + at, records() + at + front.bytes);
      }
      head += front.bytes;
      shared_head.store(head, std::memory_order_release);
      if (front.opcode != VGPU_OPCODE_PAD) return true;
    }
    return false;
  }

  FakeTransport transport;
  vgpu_ring_header* header = nullptr;
  std::atomic<uint64_t> next_seq{1};
  std::unique_ptr<CommandRing> ring;
  uint64_t head = 0;
};

TEST_F(CommandRingTest, ARecordSaysWhatItIs) {
  EXPECT_EQ(publish(100, 5), 1u);
  std::vector<char> bytes;
  ASSERT_TRUE(take(&bytes));
  const auto* record = reinterpret_cast<const vgpu_record*>(bytes.data());
  EXPECT_EQ(record->bytes, 144u);
  EXPECT_EQ(record->opcode, 3u);
  EXPECT_EQ(record->seq, 1u);
  EXPECT_EQ(record->context, 77u);
  EXPECT_EQ(publish(8, 6), 2u);
}

TEST_F(CommandRingTest, RecordsOfAllLengthsArriveInOrderRoundTheRecordArea) {
  constexpr uint32_t kRecords = 20'000;
  const uint32_t largest = VGPU_RECORD_MAX_BYTES - sizeof(vgpu_record);
  std::thread consumer([&] {
    std::vector<char> bytes;
    for (uint32_t expected = 0; expected < kRecords;) {
      if (!take(&bytes)) {
        std::this_thread::yield();
        continue;
      }
      const auto* words = reinterpret_cast<const uint32_t*>(bytes.data() + sizeof(vgpu_record));
      ASSERT_EQ(words[1], expected);
      ASSERT_GE(bytes.size(), sizeof(vgpu_record) + words[0]);
      expected++;
    }
  });
  uint32_t random = 12345;
  for (uint32_t i = 0; i < kRecords; i++) {
    random = random * 1664525 + 1013904223;
    const uint32_t length = i % 100 == 0 ? largest - (random >> 8) % 64 : 8 + (random >> 8) % 600;
    ASSERT_EQ(publish(length, i), i + 1);
  }
  consumer.join();
}

TEST_F(CommandRingTest, KicksOnlyASleepingRunner) {
  publish(8, 0);
  EXPECT_EQ(transport.kicks, 0);
  header->host_sleeping = 1;
  publish(8, 1);
  EXPECT_EQ(transport.kicks, 1);
}

TEST_F(CommandRingTest, AReplyComes) {
  const uint64_t seq = publish(8, 0);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    header->reply_result = CUDA_ERROR_NOT_READY;
    header->reply_bytes = 0xffffffff;
    std::atomic_ref<__u64>(header->reply_seq).store(seq, std::memory_order_release);
  });
  EXPECT_TRUE(ring->wait_reply(seq));
  host.join();
  EXPECT_EQ(ring->reply_result(), CUDA_ERROR_NOT_READY);
  EXPECT_LE(ring->reply_bytes(), VGPU_RING_REPLY_BYTES);
  EXPECT_EQ(header->guest_waiting, 0u);
}

TEST_F(CommandRingTest, ALostHostEndsEveryWait) {
  const uint64_t seq = publish(8, 0);
  transport.lost = true;
  EXPECT_FALSE(ring->wait_reply(seq));
  CUresult result = CUDA_SUCCESS;
  EXPECT_FALSE(ring->wait_done({0, 1}, &result));
  uint32_t published = 0;
  while (publish(4096, 0)) ASSERT_LT(++published, 64u);
}

TEST_F(CommandRingTest, CompletionsOfOneSlotComeInOrder) {
  CUresult result = CUDA_SUCCESS;
  EXPECT_TRUE(ring->wait_done(ring->last_done(2), &result)) << "nothing is outstanding at first";
  const vgpu_done first = ring->next_done(2);
  EXPECT_EQ(ring->next_done(2).token, first.token) << "not used yet";
  ring->commit_done(first);
  const vgpu_done second = ring->next_done(2);
  EXPECT_EQ(second.token, first.token + 1);
  header->done[2] = uint64_t{first.token} << 32 | CUDA_ERROR_INVALID_VALUE;
  EXPECT_TRUE(ring->wait_done(first, &result));
  EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
  header->done[2] = uint64_t{second.token} << 32 | CUDA_ERROR_INVALID_VALUE;
  EXPECT_TRUE(ring->wait_done(first, &result)) << "a later completion covers an earlier one";
  EXPECT_EQ(result, CUDA_SUCCESS);
}

TEST(CommandRingPool, HandsRingsRoundAndOn) {
  FakeTransport transport;
  std::atomic<uint64_t> next_seq{1};
  CommandRingPool pool(&transport, &next_seq);
  CommandRing* const ring = pool.take();
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(pool.take(), nullptr) << "the host gives no more";
  pool.give_back(ring);
  EXPECT_EQ(pool.take(), ring);
}

}  // namespace
}  // namespace bandsaw::libcuda
