// What records reach of memory that has left the device with nothing at its addresses.
#include "backend/runner/swap/reaching.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "tests/unit/runner/fake_device.h"
#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

using Chunks = std::vector<uint64_t>;

constexpr uint64_t kBase = 0x7d0000000000, kWindow = uint64_t{1} << 40, kChunk = 4 << 20;
// Allocations of two chunks each, with a hole behind each of them; C is in use on the device.
constexpr uint64_t kA = kBase + (1 << 30), kB = kA + 2 * kChunk + kMapUnit, kC = kB + 2 * kChunk + kMapUnit;

class ReachingDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  CUresult chunks_reach(const std::vector<uint64_t>& chunks) override {
    mapped.insert(chunks.begin(), chunks.end());
    return result;
  }
  std::set<uint64_t> mapped;
  CUresult result = CUDA_SUCCESS;
};

class ReachingTest : public testing::Test {
 protected:
  ReachingTest() {
    reaching_.set_device(&device_);
    reaching_.set_window(kBase, kWindow);
    reaching_.set_find_pointers([this](const wire::CheckedRecord&) { return known_ ? &pointers_ : nullptr; });
    for (const uint64_t address : {kA, kB, kC}) {
      book_.add(address, address, kChunk, true);
      book_.add(address, address + kChunk, kChunk, true);
    }
    leave();
  }
  void leave() {
    for (const uint64_t address : {kA, kB}) {
      for (const uint64_t chunk : {address, address + kChunk}) book_.moved(chunk, false, true);
    }
    device_.mapped.clear();
    reaching_.moved(reaching_.may_leave_apart());
  }
  template <typename Args>
  Chunks open(const Args& args, std::span<const std::byte> tail = {}, bool node = false) {
    wire::CallInfo info{};
    info.name = "test";
    wire::CheckedRecord record{};
    record.info = &info;
    record.opcode = Args::kOpcode;
    record.args = reinterpret_cast<const std::byte*>(&args);
    record.tail = tail;
    reaching_.open(record, node);
    return {device_.mapped.begin(), device_.mapped.end()};
  }
  Chunks open_launch(const std::vector<uint64_t>& words, bool node = false) {
    return open(wire::LaunchArgs{}, std::as_bytes(std::span(words)), node);
  }
  void pointers(std::vector<ptx::PointerParameters::Pointer> found) {
    known_ = true;
    pointers_ = {.why_not = "", .pointers = std::move(found)};
  }

  TestClock clock_;
  UsagePageView page_;
  ChunkBook book_{&page_, &clock_};
  ReachingDevice device_{kBase, nullptr};
  Reaching reaching_{&book_};
  bool known_ = false;
  ptx::PointerParameters pointers_;
  const Chunks a_{kA, kA + kChunk}, b_{kB, kB + kChunk}, all_{kA, kA + kChunk, kB, kB + kChunk}, none_;
};

TEST_F(ReachingTest, AKnownLaunchReachesWhatItsParametersPointInto) {
  pointers({{8, true}});
  EXPECT_EQ(open_launch({17, kA + kChunk + 5}), a_);
  EXPECT_TRUE(reaching_.may_leave_apart());
  EXPECT_EQ(open_launch({17, kA}), a_) << "not once more";
  leave();
  EXPECT_EQ(open_launch({17, kC}), none_) << "that is on the device";
  EXPECT_EQ(open_launch({kB, kC}), b_) << "whatever the text says of that parameter";
}

TEST_F(ReachingTest, AnUnknownLaunchReachesAll) {
  EXPECT_EQ(open_launch({kC}), all_);
  EXPECT_FALSE(reaching_.may_leave_apart());
  leave();
  EXPECT_FALSE(reaching_.may_leave_apart()) << "nothing else was launched";
  pointers({{0, true}});
  EXPECT_EQ(open_launch({kC}), none_);
  EXPECT_TRUE(reaching_.may_leave_apart());
  pointers_.why_not = "it is hidden";
  EXPECT_EQ(open_launch({kC}), all_);
}

TEST_F(ReachingTest, ANumberWhereAPointerIsUsedReachesAll) {
  for (const uint64_t number : {uint64_t{4096}, kBase - 1, kBase + kWindow, ~uint64_t{0}}) {
    pointers({{0, true}});
    EXPECT_EQ(open_launch({number}), all_) << std::hex << number;
    leave();
  }
  pointers({{0, false}});
  EXPECT_EQ(open_launch({0}), all_) << "what is added to it may be a pointer";
}

TEST_F(ReachingTest, NoPointerReachesNothing) {
  pointers({{0, true}, {8, true}});
  EXPECT_EQ(open_launch({0, kC}), none_);
}

TEST_F(ReachingTest, FewerParametersThanTheTextHasReachAll) {
  pointers({{8, true}});
  EXPECT_EQ(open_launch({kC}), all_);
  leave();
  pointers({{SIZE_MAX - 3, true}});
  EXPECT_EQ(open_launch({kC}), all_);
}

TEST_F(ReachingTest, APointerNearToAnAllocationMayBeOfIt) {
  pointers({{0, true}});
  EXPECT_EQ(open_launch({kA - 4}), a_) << "of a program that counts from 1";
  leave();
  EXPECT_EQ(open_launch({kA + 2 * kChunk}), a_) << "just past its end";
  leave();
  EXPECT_EQ(open_launch({kA + 2 * kChunk + 4}), all_) << "past one end, and before the other beginning";
  leave();
  EXPECT_EQ(open_launch({kC + 2 * kChunk}), none_);
  EXPECT_EQ(open_launch({kBase}), none_) << "other memory of the program's";
}

TEST_F(ReachingTest, WhatBecomesANodeMayBeLaunchedAtAnyTime) {
  pointers({{0, true}});
  EXPECT_EQ(open_launch({kC}, true), all_);
  leave();
  EXPECT_FALSE(reaching_.may_leave_apart());
}

TEST_F(ReachingTest, CopiesReachTheirRanges) {
  wire::CopyArgs args{};
  args.copy.width_bytes = 16, args.copy.height = args.copy.depth = 1;
  args.copy.source = {.address = kA + kChunk, .kind = VGPU_MEMORY_DEVICE};
  args.copy.destination = {.address = kB, .kind = VGPU_MEMORY_HOST};
  EXPECT_EQ(open(args), a_);
  leave();
  // Rows that begin far from the address.
  args.copy.source = {.address = kC, .kind = VGPU_MEMORY_DEVICE};
  args.copy.destination = {.address = kA, .pitch = kChunk, .height = 3, .y = 1, .z = 1, .kind = VGPU_MEMORY_DEVICE};
  EXPECT_EQ(open(args), all_);
  leave();
  args.copy.destination.height = ~uint64_t{0};
  EXPECT_EQ(open(args), all_) << "no size at all";
  leave();
  args.copy.destination = {.address = ~uint64_t{7}, .kind = VGPU_MEMORY_DEVICE};
  EXPECT_EQ(open(args), all_);
}

TEST_F(ReachingTest, FillsAndWordsReachTheirRanges) {
  wire::FillArgs fill{};
  fill.fill = {.address = kA, .pitch = 512, .width = 4, .height = 2, .element_bytes = 4, .value = 0};
  EXPECT_EQ(open(fill), a_);
  EXPECT_TRUE(reaching_.may_leave_apart());
  leave();
  fill.fill.pitch = fill.fill.height = ~uint64_t{0};
  EXPECT_EQ(open(fill), all_);
  leave();
  wire::CopyOutArgs out{};
  out.source = kB, out.size = 8;
  EXPECT_EQ(open(out), b_);
  leave();
  wire::CopyInArgs in{};
  in.destination = kC - 4;
  const std::array<std::byte, 8> data{};
  EXPECT_EQ(open(in, data), none_);
  wire::StreamWriteValueArgs write{};
  write.address = kA, write.bytes = 4;
  EXPECT_EQ(open(write), a_);
}

TEST_F(ReachingTest, WhatKeepsAnAddressMayUseItAtAnyTime) {
  EXPECT_EQ(open(wire::EventRecordArgs{}), none_);
  EXPECT_EQ(open(wire::MemoryAllocArgs{}), none_);
  EXPECT_TRUE(reaching_.may_leave_apart());
  EXPECT_EQ(open(wire::TextureCreateArgs{}), all_);
  leave();
  EXPECT_FALSE(reaching_.may_leave_apart()) << "the texture is still there";
}

TEST_F(ReachingTest, WhatCannotBeMappedIsTriedAgain) {
  device_.result = CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(open_launch({kC}), all_);
  device_.mapped.clear();
  device_.result = CUDA_SUCCESS;
  EXPECT_EQ(open_launch({kC}), all_);
}

}  // namespace
}  // namespace bandsaw::runner
