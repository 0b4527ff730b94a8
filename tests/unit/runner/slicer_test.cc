// Launches that are cut into slices, as the device gets them and as the guest sees them. The device is a fake: that the
// rewritten kernels do the same is tests/direct's and tools/bench slices' to say.
#include "backend/runner/slicer.h"

#include <gtest/gtest.h>

#include <deque>

#include "memory/base/futex.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

constexpr uint32_t kSlot = 7;
constexpr std::string_view kPtx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry fill(.param .u64 fill_0, .param .u32 fill_1)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [fill_0];
  ld.param.u32 %r1, [fill_1];
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
)";
constexpr uint64_t kAddress = 0x1122334455667788;
constexpr uint32_t kValue = 42;

// Notes what it is given, in order, and ends slices when the test says so.
class SlicedDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;

  CUresult launch(const StreamRef& stream, const Launch& launch) override {
    std::lock_guard lock(mutex);
    const CUresult result = fail_at == taken++ ? failure : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    const bool cut = launch.parameters.size() >= 36;  // behind the original's 12 bytes: first block, grid
    uint32_t first = 0;
    if (cut) std::memcpy(&first, launch.parameters.data() + 12, sizeof first);
    note(cut ? fmt::format("{}+{}", first, launch.grid[0]) : fmt::format("whole {}", launch.grid[0]));
    parameters.assign(launch.parameters.begin(), launch.parameters.end());
    return FakeDevice::launch(stream, launch);
  }
  CUresult event_record(const EventRef&, const StreamRef&, uint32_t) override {
    std::lock_guard lock(mutex);
    note("record");
    return CUDA_SUCCESS;
  }
  CUresult copy(const StreamRef& stream, const Copy& what, Done done) override {
    {
      std::lock_guard lock(mutex);
      note("copy");
    }
    return FakeDevice::copy(stream, what, std::move(done));
  }
  void slice_end(unsigned engine, SliceDone done) override {
    {
      std::lock_guard lock(mutex);
      if (hold && engine == kCompute) return held.push_back(std::move(done));
    }
    done(1000);
  }
  // The oldest slice is over.
  void end_slice() {
    SliceDone done;
    {
      std::lock_guard lock(mutex);
      done = std::move(held.front());
      held.pop_front();
    }
    done(1000);
  }
  void end_all() {
    std::deque<SliceDone> all;
    {
      std::lock_guard lock(mutex);
      hold = false;
      all.swap(held);
    }
    for (SliceDone& done : all) done(1000);
  }
  std::vector<std::string> seen() {
    std::lock_guard lock(mutex);
    return notes;
  }

  std::mutex mutex;
  bool hold = false;
  int fail_at = -1, taken = 0;
  CUresult failure = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  std::vector<std::byte> parameters;

 private:
  void note(std::string text) { notes.push_back(std::move(text)); }

  std::deque<SliceDone> held;
  std::vector<std::string> notes;
};

SliceSettings forced(uint64_t blocks) {
  SliceSettings settings;
  settings.enabled = settings.any_gpu = true;
  settings.force_blocks = blocks;
  return settings;
}

// Every launch of this guest is cut into slices of three blocks. Gates are open unless the test closes them.
class Sliced : public Guest {
 protected:
  Sliced() : Guest(std::make_unique<SlicedDevice, uint64_t, DeviceHost*>, forced(3)) {
    board_->depth = 8;
    for (Gate& gate : board_->gates[kSlot]) gate.open = 1;
    process_->gate().connect(board_.get(), kSlot, UniqueFd());
    make_context(lane_);
    function_ = load(kPtx);
  }
  ~Sliced() override {
    board_->absent = 1;
    for (Gate& gate : board_->gates[kSlot]) futex_wake(&gate.granted);
    device().end_all();
  }

  SlicedDevice& device() { return static_cast<SlicedDevice&>(*device_); }
  Gate& gate() { return board_->gates[kSlot][kCompute]; }
  SliceCounters& counters() { return process_->account().slot().slices; }

  uint64_t load(std::string_view ptx) {
    const uint64_t at = 0x40000000 + loaded_ * kPage, offset = (4 << 20) + loaded_ * kPage;
    EXPECT_TRUE(add_region(++loaded_, at, offset, kPage).ok());
    std::memcpy(ram_.data() + offset, ptx.data(), ptx.size());
    const auto module = lane_.call<wire::ModuleLoadReply>(Opcode::kModuleLoad, wire::ModuleLoadArgs{at, ptx.size()});
    EXPECT_EQ(module.result, CUDA_SUCCESS);
    const auto function = lane_.call<wire::ModuleFunctionReply>(
        Opcode::kModuleFunction, wire::ModuleFunctionArgs{module.reply.module, 4, 0}, "fill");
    EXPECT_EQ(function.result, CUDA_SUCCESS);
    return function.reply.function;
  }
  uint64_t make_stream() {
    return lane_.call<wire::StreamCreateReply>(Opcode::kStreamCreate, wire::StreamCreateArgs{0, 0}).reply.stream;
  }
  uint64_t make_event() {
    return lane_.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0, 0}).reply.event;
  }
  void launch(uint32_t blocks, uint64_t stream = 0, uint32_t flags = 0) {
    wire::LaunchArgs args{};
    args.launch.function = function_;
    args.launch.stream = stream;
    args.launch.flags = flags;
    args.launch.grid[0] = blocks;
    args.launch.grid[1] = args.launch.grid[2] = 1;
    args.launch.block[0] = 32;
    args.launch.block[1] = args.launch.block[2] = 1;
    args.parameters_bytes = 12;
    std::string parameters(12, '\0');
    std::memcpy(parameters.data(), &kAddress, 8);
    std::memcpy(parameters.data() + 8, &kValue, 4);
    lane_.send(Opcode::kLaunch, args, parameters);
  }
  uint64_t send_synchronize(uint64_t stream = 0) {
    return lane_.send(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{stream});
  }
  int synchronize(uint64_t stream = 0) { return lane_.answer(send_synchronize(stream)).result; }
  void wait_for(size_t things) {
    TestLane::wait([&] { return device().seen().size() >= things; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // that there are no more
  }
  using Seen = std::vector<std::string>;

  std::unique_ptr<GateBoard> board_ = std::make_unique<GateBoard>();
  TestLane lane_ = add_lane(0);
  uint64_t function_ = 0;
  uint32_t loaded_ = 0;
};

TEST_F(Sliced, BlocksComeInOrderAndWhatFollowsComesAfterThem) {
  launch(10);
  lane_.send(Opcode::kEventRecord, wire::EventRecordArgs{make_event(), 0, 0, 0});
  launch(2);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+3", "9+1", "record", "0+2"}));
  EXPECT_EQ(counters().kernels, 1u);
  EXPECT_EQ(counters().sliceable, 1u);
  EXPECT_EQ(counters().launches, 2u);
  EXPECT_EQ(counters().slices, 5u);
  EXPECT_EQ(process_->account().slot().launches, 2u);  // as the program counts
}

TEST_F(Sliced, TheOriginalParametersComeFirst) {
  launch(5);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  ASSERT_EQ(device().parameters.size(), 36u);
  uint32_t words[9];
  std::memcpy(words, device().parameters.data(), sizeof words);
  EXPECT_EQ(std::memcmp(words, &kAddress, 8), 0);
  const uint32_t expected[7] = {kValue, 3, 0, 0, 5, 1, 1};
  EXPECT_EQ(std::memcmp(words + 2, expected, sizeof expected), 0);
}

TEST_F(Sliced, SoManySlicesAreInFlight) {
  device().hold = true;
  launch(12);
  wait_for(2);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
  device().end_slice();
  wait_for(3);
  EXPECT_EQ(device().seen().size(), 3u);
  device().end_slice();
  wait_for(4);
  const uint64_t after = send_synchronize();
  EXPECT_EQ(lane_.answer(after).result, CUDA_SUCCESS);  // the last ones are on the device: it may wait there
  EXPECT_EQ(device().seen().back(), "9+3");
}

TEST_F(Sliced, EverySliceAsksAtAClosedGateAndGoesOnWhereItStopped) {
  gate().open = 0;
  launch(9);
  for (uint32_t grant = 1; grant <= 3; ++grant) {
    TestLane::wait([&] { return gate().asked == grant; });
    EXPECT_EQ(device().seen().size(), grant - 1);
    gate().granted = grant;
    futex_wake(&gate().granted);
    wait_for(grant);
  }
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+3"}));
  EXPECT_EQ(gate().begun, 3u);
  TestLane::wait([&] { return gate().ended == 3; });
}

TEST_F(Sliced, OtherStreamsAndWhatIsOnlyMadeGoPast) {
  const uint64_t busy = make_stream(), other = make_stream(), event = make_event(), before = make_event();
  lane_.send(Opcode::kEventRecord, wire::EventRecordArgs{before, busy, 0, 0});
  device().hold = true;
  launch(12, busy);
  wait_for(3);
  lane_.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), other, 1, 0}, "x");
  wait_for(4);
  EXPECT_EQ(device().seen(), (Seen{"record", "0+3", "3+3", "copy"}));
  EXPECT_EQ(synchronize(other), CUDA_SUCCESS);
  EXPECT_NE(make_event(), 0u);
  EXPECT_EQ(lane_.call(Opcode::kEventQuery, wire::EventQueryArgs{before}).result, CUDA_SUCCESS);
  EXPECT_EQ(lane_.call(Opcode::kStreamQuery, wire::StreamQueryArgs{busy}).result, CUDA_ERROR_NOT_READY);
  // An event that is to be recorded behind the launch, and who waits for it.
  lane_.send(Opcode::kEventRecord, wire::EventRecordArgs{event, busy, 0, 0});
  lane_.send(Opcode::kStreamWaitEvent, wire::StreamWaitEventArgs{other, event, 0, 0});
  launch(1, other);
  wait_for(4);
  EXPECT_EQ(device().seen().size(), 4u);
  device().end_all();
  wait_for(8);
  EXPECT_EQ(device().seen(), (Seen{"record", "0+3", "3+3", "copy", "6+3", "9+3", "record", "0+1"}));
}

TEST_F(Sliced, TheLegacyStreamWaitsForAll) {
  const uint64_t busy = make_stream();
  device().hold = true;
  launch(12, busy);
  wait_for(2);
  launch(1);
  wait_for(2);
  EXPECT_EQ(device().seen().size(), 2u);
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+3", "9+3", "0+1"}));
}

TEST_F(Sliced, AnErrorOfALaterSliceEndsTheLaunchAndIsSaidOnce) {
  device().fail_at = 2;
  launch(12);
  EXPECT_EQ(synchronize(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
}

TEST_F(Sliced, WhatTheDeviceDoesNotLaunchInSlicesRunsWholeFromThenOn) {
  device().fail_at = 0;
  launch(12);
  launch(12);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"whole 12", "whole 12"}));
  EXPECT_EQ(counters().fallbacks, 1u);
}

TEST_F(Sliced, LaunchesThatMeanMoreThanTheirBlocksStayWhole) {
  launch(12, 0, VGPU_LAUNCH_COOPERATIVE);
  launch(12, 0, VGPU_LAUNCH_PROGRAMMATIC);
  launch(6);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"whole 12", "whole 12", "0+3", "3+3"}));
  EXPECT_EQ(counters().kernels, 1u);
  EXPECT_STREQ(counters().refused[0].text, "it is launched cooperatively");
  EXPECT_EQ(counters().refused[0].kernels, 1u);
}

TEST_F(Sliced, WithoutPtxAKernelRunsWhole) {
  function_ = load("no code that anybody could read");
  launch(12);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"whole 12"}));
  EXPECT_EQ(counters().sliceable, 0u);
  EXPECT_EQ(counters().refused[0].kernels, 1u);
}

TEST_F(Sliced, NothingMoreIsIssuedOfAFailedProcess) {
  device().hold = true;
  launch(30);
  wait_for(2);
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(device().seen().size(), 2u);
}

TEST_F(Sliced, AProcessMayEndInTheMiddle) {
  device().hold = true;
  launch(30);
  wait_for(2);
  // The fixture takes decoder and process down; slices end after that, or never.
}

TEST_F(Sliced, ALaneGoesWhenItsLaunchIsIssued) {
  device().hold = true;
  launch(12);
  wait_for(2);
  std::atomic<bool> gone{false};
  decoder_->drop_lane(0, [&] { gone = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_FALSE(gone);
  device().end_all();
  TestLane::wait([&] { return gone.load(); });
  EXPECT_EQ(device().seen().size(), 4u);
}

TEST_F(Sliced, ManyRecordsWaitWithoutKeepingAProcessorBusy) {
  device().hold = true;
  launch(12);
  wait_for(2);
  for (int i = 0; i < 1500; ++i) launch(1);  // more than are parked
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen().size(), 4u + 1500);
}

TEST(SliceSettings, AreReadWordByWord) {
  SliceSettings settings;
  EXPECT_TRUE(
      read_slice_settings("enabled=1 threshold_us=70 in_flight=3 force_blocks=5 form=persistent", &settings).ok());
  EXPECT_TRUE(settings.enabled && settings.persistent);
  EXPECT_EQ(settings.threshold_ns, 70'000u);
  EXPECT_EQ(settings.in_flight, 3u);
  EXPECT_EQ(settings.force_blocks, 5u);
  EXPECT_TRUE(read_slice_settings("", &settings).ok());
  for (const char* wrong :
       {"enabled", "enabled=2", "in_flight=0", "threshold_us=x", "form=other", "colour=1", "=", "in_flight=3x"}) {
    EXPECT_FALSE(read_slice_settings(wrong, &settings).ok()) << wrong;
  }
}

TEST(SliceSize, BeginsWholeAndIsCutOnceItIsMeasured) {
  SliceSize size(20'000, 528, 132);
  EXPECT_EQ(size.blocks(), 20'000u);
  size.learn_whole(28'000'000);
  EXPECT_LT(size.blocks(), 20'000u);
  EXPECT_FALSE(size.hopeless());
}

TEST(SliceSize, ARewrittenFormThatIsSlowerIsGivenUp) {
  SliceSize size(20'000, 528, 132);
  size.learn_whole(28'000'000);
  for (int i = 0; i < 100 && !size.hopeless(); ++i) size.learn_sliced(size.blocks(), 31'000'000);
  EXPECT_TRUE(size.hopeless());
}

TEST(SliceSize, OneThatIsAsFastIsKept) {
  SliceSize size(20'000, 528, 132);
  size.learn_whole(28'000'000);
  for (int i = 0; i < 100; ++i) size.learn_sliced(size.blocks(), 28'000'000 + 3'000 * (20'000 / size.blocks()));
  EXPECT_FALSE(size.hopeless());
}

}  // namespace
}  // namespace bandsaw::runner
