// What well-behaved guests get: each kind of call through a real lane.
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

class Calls : public Guest {};

TEST_F(Calls, RoundTripsAnswerWithTheRightBody) {
  TestLane lane = add_lane(0);
  const auto info = lane.call<wire::DeviceInfoReply>(Opcode::kDeviceInfo);
  EXPECT_EQ(info.result, CUDA_SUCCESS);
  EXPECT_STREQ(info.reply.info.name, "fake");
  const auto memory = lane.call<wire::MemoryInfoReply>(Opcode::kMemoryInfo);
  EXPECT_EQ(memory.reply.total, FakeDevice::kBytes);
}

TEST_F(Calls, ManyRecordsGoAroundTheRing) {
  TestLane lane = add_lane(0);
  make_context(lane);
  const std::string data(5000, 'x');
  const wire::CopyInArgs args{device_base(), 0, static_cast<uint32_t>(data.size()), 0};
  for (int i = 0; i < 200; ++i) lane.send(Opcode::kCopyIn, args, data);
  const auto out = lane.call<wire::CopyOutReply>(Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 5000, 0});
  EXPECT_EQ(out.result, CUDA_SUCCESS);
  EXPECT_EQ(out.tail, data);
}

TEST_F(Calls, RecordsOfTwoLanesRunInTheOrderOfTheirNumbers) {
  TestLane first = add_lane(0), second = add_lane(1);
  second.context = make_context(first);
  const auto put = [&](TestLane& lane, uint64_t seq, char value) {
    const wire::CopyInArgs args{device_base(), 0, 1, 0};
    lane.send_as(seq, Opcode::kCopyIn, &args, sizeof(args), std::string(1, value));
  };
  const uint64_t next = last_seq_ + 1;
  put(second, next + 1, 'b');  // published first, but later in order
  put(first, next, 'a');
  last_seq_ += 2;
  const auto out = first.call<wire::CopyOutReply>(Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 1, 0});
  EXPECT_EQ(out.tail, "b");
}

TEST_F(Calls, CopiesBetweenRegionsAndDeviceAndSaysWhenDone) {
  TestLane lane = add_lane(0);
  make_context(lane);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, 4 * kPage).ok());
  std::memcpy(ram_.data() + (4 << 20) + 100, "hello", 5);
  const auto in = linear_copy(device_base() + 8, VGPU_MEMORY_DEVICE, 0x40000000 + 100, VGPU_MEMORY_HOST, 5);
  lane.send(Opcode::kCopy, wire::CopyArgs{in, 0, {2, 7}});
  TestLane::wait([&] { return lane.done_word(2) == 7ull << 32; });
  const auto out = linear_copy(0x40000000 + 4 * kPage - 5, VGPU_MEMORY_HOST, device_base() + 8, VGPU_MEMORY_DEVICE, 5);
  lane.send(Opcode::kCopy, wire::CopyArgs{out, 0, {3, 8}});
  TestLane::wait([&] { return lane.done_word(3) == 8ull << 32; });
  EXPECT_EQ(std::memcmp(ram_.data() + (4 << 20) + 4 * kPage - 5, "hello", 5), 0);
}

TEST_F(Calls, DroppedRegionWaitsForItsCopies) {
  TestLane lane = add_lane(0);
  make_context(lane);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  device_->hold_work(true);
  const auto in = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x40000000, VGPU_MEMORY_HOST, 64);
  lane.send(Opcode::kCopy, wire::CopyArgs{in, 0, {0, 1}});
  TestLane::wait([&] { return device_->waiting() == 1; });
  std::atomic<bool> gone{false};
  ASSERT_TRUE(process_->memory().drop_region(1, [&] { gone = true; }).ok());
  EXPECT_FALSE(gone);
  EXPECT_FALSE(process_->memory().find(0x40000000, 1, Access::kRead));
  device_->finish();
  EXPECT_TRUE(gone);
}

TEST_F(Calls, ImagesAreCopiedAndLogsComeBackWithTheError) {
  TestLane lane = add_lane(0);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  std::memcpy(ram_.data() + (4 << 20), "good image", 10);
  const auto good = lane.call<wire::LibraryLoadReply>(Opcode::kLibraryLoad, wire::LibraryLoadArgs{0x40000000, 10});
  ASSERT_EQ(good.result, CUDA_SUCCESS);
  EXPECT_EQ(device_->last_image.size(), 10u);
  const auto bad = lane.call<wire::LibraryLoadReply>(Opcode::kLibraryLoad, wire::LibraryLoadArgs{0x40000001, 10});
  EXPECT_EQ(bad.result, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(bad.tail, "not good");

  wire::LibraryKernelArgs args{};
  args.library = good.reply.library;
  args.name_bytes = 5;
  const auto kernel = lane.call<wire::LibraryKernelReply>(Opcode::kLibraryKernel, args, "first");
  ASSERT_EQ(kernel.result, CUDA_SUCCESS);
  EXPECT_EQ(kernel.reply.info.parameters, 2u);
  EXPECT_EQ(kernel.tail.size(), 2 * sizeof(vgpu_parameter));

  make_context(lane);
  vgpu_launch launch{};
  launch.function = kernel.reply.kernel;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  lane.send(Opcode::kLaunch, wire::LaunchArgs{launch, 12}, "parameters!!");
  EXPECT_EQ(lane.call(Opcode::kContextSynchronize, wire::ContextSynchronizeArgs{lane.context}).result, CUDA_SUCCESS);
  EXPECT_EQ(device_->launches, 1);
  EXPECT_EQ(device_->launched.size(), 12u);
}

TEST_F(Calls, HostFunctionsGoToTheGuestAndBack) {
  TestLane lane = add_lane(0), callback_lane = add_lane(1);
  make_context(lane);
  const uint64_t poll = callback_lane.send(Opcode::kNextCallback, wire::NextCallbackArgs{0});
  lane.send(Opcode::kStreamCallback, wire::StreamCallbackArgs{0, 0x1234, 0x5678, VGPU_CALLBACK_HOST_FUNCTION});
  const auto first = callback_lane.answer<wire::NextCallbackReply>(poll);
  EXPECT_EQ(first.reply.callback.function, 0x1234u);
  EXPECT_EQ(device_->callbacks_done, 0);
  const uint64_t again = callback_lane.send(Opcode::kNextCallback, wire::NextCallbackArgs{first.reply.callback.token});
  TestLane::wait([&] { return device_->callbacks_done == 1; });
  lane.send(Opcode::kStreamCallback, wire::StreamCallbackArgs{0, 0x99, 0, VGPU_CALLBACK_STREAM});
  EXPECT_EQ(callback_lane.answer<wire::NextCallbackReply>(again).reply.callback.function, 0x99u);
}

TEST_F(Calls, PrintedTextIsAnnouncedAndFetched) {
  TestLane lane = add_lane(0);
  device_->host()->print("kernel says hello\n");
  lane.call(Opcode::kMemoryInfo);
  EXPECT_EQ(lane.header->reply_flags, VGPU_REPLY_OUTPUT_PENDING);
  EXPECT_EQ(lane.call<wire::FetchOutputReply>(Opcode::kFetchOutput).tail, "kernel says hello\n");
  EXPECT_EQ(lane.header->reply_flags, 0u);
}

TEST_F(Calls, DefaultStreamOfAThreadIsMadeOncePerLaneAndContext) {
  TestLane first = add_lane(0), second = add_lane(1);
  second.context = make_context(first);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(first.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{VGPU_STREAM_PER_THREAD}).result, 0);
    EXPECT_EQ(second.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{VGPU_STREAM_PER_THREAD}).result, 0);
  }
  EXPECT_EQ(device_->streams, 2);
  EXPECT_EQ(first.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
  EXPECT_EQ(device_->streams, 2);
}

TEST_F(Calls, ContextTakesItsStreamsAndEventsAlong) {
  TestLane lane = add_lane(0);
  const uint64_t context = make_context(lane);
  const auto stream = lane.call<wire::StreamCreateReply>(Opcode::kStreamCreate, wire::StreamCreateArgs{0, 0});
  const auto event = lane.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0});
  EXPECT_EQ(lane.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_SUCCESS);
  EXPECT_EQ(lane.call(Opcode::kContextDestroy, wire::ContextDestroyArgs{context}).result, CUDA_SUCCESS);
  EXPECT_EQ(lane.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(lane.call(Opcode::kStreamDestroy, wire::StreamDestroyArgs{stream.reply.stream}).result,
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(lane.call(Opcode::kStreamQuery, wire::StreamQueryArgs{0}).result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Calls, ResetKeepsTheHandleOfTheContext) {
  TestLane lane = add_lane(0);
  const uint64_t context = make_context(lane);
  const auto event = lane.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0});
  EXPECT_EQ(lane.call(Opcode::kContextReset, wire::ContextResetArgs{context}).result, CUDA_SUCCESS);
  EXPECT_EQ(lane.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(lane.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0}).result, CUDA_SUCCESS);
}

TEST_F(Calls, ErrorsOfAsynchronousCallsSurfaceOnceAtASynchronisingCall) {
  TestLane lane = add_lane(0);
  make_context(lane);
  vgpu_launch launch{};
  lane.send(Opcode::kLaunch, wire::LaunchArgs{launch, 0});  // no such function
  EXPECT_EQ(lane.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  EXPECT_EQ(lane.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(lane.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
}

TEST_F(Calls, ErrorsOfACopyGoToItsDoneWord) {
  TestLane lane = add_lane(0);
  make_context(lane);
  const auto copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x50000000, VGPU_MEMORY_HOST, 4);
  lane.send(Opcode::kCopy, wire::CopyArgs{copy, 0, {1, 9}});
  TestLane::wait([&] { return lane.done_word(1) == ((9ull << 32) | CUDA_ERROR_INVALID_VALUE); });
  EXPECT_EQ(lane.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
}

TEST_F(Calls, StickyErrorsStandInEveryLaneAndAnswerEveryCall) {
  TestLane first = add_lane(0), second = add_lane(1);
  make_context(first);
  device_->host()->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(first.header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(second.header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(second.call(Opcode::kMemoryInfo).result, CUDA_ERROR_ILLEGAL_ADDRESS);
  device_->host()->print("last words");
  EXPECT_EQ(second.call<wire::FetchOutputReply>(Opcode::kFetchOutput).tail, "last words");
  EXPECT_EQ(add_lane(2).header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Calls, SleepsWhenIdleAndWakesByTheKick) {
  TestLane lane = add_lane(0);
  lane.call(Opcode::kMemoryInfo);
  TestLane::wait([&] { return TestLane::load(lane.header->host_sleeping) == 1; });
  EXPECT_EQ(lane.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

TEST_F(Calls, DroppedLaneFinishesItsRecordsFirst) {
  TestLane lane = add_lane(0);
  make_context(lane);
  const wire::CopyInArgs args{device_base(), 0, 1, 0};
  for (int i = 0; i < 100; ++i) lane.send(Opcode::kCopyIn, args, "z");
  std::atomic<bool> gone{false};
  decoder_->drop_lane(0, [&] { gone = true; });
  TestLane::wait([&] { return gone.load(); });
  EXPECT_EQ(lane.header->head, lane.tail);
  std::memset(ram_.data(), 0, VGPU_LANE_BYTES);
  last_seq_ = 101;
  EXPECT_EQ(add_lane(0).call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
