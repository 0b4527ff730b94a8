// What well-behaved guests get: each kind of call through a real ring.
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

class Calls : public Guest {};

TEST_F(Calls, RoundTripsAnswerWithTheRightBody) {
  TestRing ring = add_ring(0);
  const auto info = ring.call<wire::DeviceInfoReply>(Opcode::kDeviceInfo);
  EXPECT_EQ(info.result, CUDA_SUCCESS);
  EXPECT_STREQ(info.reply.info.name, "fake");
  const auto memory = ring.call<wire::MemoryInfoReply>(Opcode::kMemoryInfo);
  EXPECT_EQ(memory.reply.total, FakeDevice::kBytes);
}

TEST_F(Calls, ManyRecordsGoAroundTheRing) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const std::string data(5000, 'x');
  const wire::CopyInArgs args{device_base(), 0, static_cast<uint32_t>(data.size()), 0};
  for (int i = 0; i < 200; ++i) ring.send(Opcode::kCopyIn, args, data);
  const auto out = ring.call<wire::CopyOutReply>(Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 5000, 0});
  EXPECT_EQ(out.result, CUDA_SUCCESS);
  EXPECT_EQ(out.tail, data);
}

TEST_F(Calls, RecordsOfTwoRingsRunInTheOrderOfTheirNumbers) {
  TestRing first = add_ring(0), second = add_ring(1);
  second.context = make_context(first);
  const auto put = [&](TestRing& ring, uint64_t seq, char value) {
    const wire::CopyInArgs args{device_base(), 0, 1, 0};
    ring.send_as(seq, Opcode::kCopyIn, &args, sizeof(args), std::string(1, value));
  };
  const uint64_t next = last_seq_ + 1;
  put(second, next + 1, 'b');  // published first, but later in order
  put(first, next, 'a');
  last_seq_ += 2;
  const auto out = first.call<wire::CopyOutReply>(Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 1, 0});
  EXPECT_EQ(out.tail, "b");
}

TEST_F(Calls, CopiesBetweenRegionsAndDeviceAndSaysWhenDone) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, 4 * kPage).ok());
  std::memcpy(ram_.data() + (4 << 20) + 100, "hello", 5);
  const auto in = linear_copy(device_base() + 8, VGPU_MEMORY_DEVICE, 0x40000000 + 100, VGPU_MEMORY_HOST, 5);
  ring.send(Opcode::kCopy, wire::CopyArgs{in, 0, {2, 7}});
  TestRing::wait([&] { return ring.done_word(2) == 7ull << 32; });
  const auto out = linear_copy(0x40000000 + 4 * kPage - 5, VGPU_MEMORY_HOST, device_base() + 8, VGPU_MEMORY_DEVICE, 5);
  ring.send(Opcode::kCopy, wire::CopyArgs{out, 0, {3, 8}});
  TestRing::wait([&] { return ring.done_word(3) == 8ull << 32; });
  EXPECT_EQ(std::memcmp(ram_.data() + (4 << 20) + 4 * kPage - 5, "hello", 5), 0);
}

TEST_F(Calls, DroppedRegionWaitsForItsCopies) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  device_->hold_work(true);
  const auto in = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x40000000, VGPU_MEMORY_HOST, 64);
  ring.send(Opcode::kCopy, wire::CopyArgs{in, 0, {0, 1}});
  TestRing::wait([&] { return device_->waiting() == 1; });
  std::atomic<bool> gone{false};
  ASSERT_TRUE(process_->memory().drop_region(1, [&] { gone = true; }).ok());
  EXPECT_FALSE(gone);
  EXPECT_FALSE(process_->memory().find(0x40000000, 1, Access::kRead));
  device_->finish();
  EXPECT_TRUE(gone);
}

TEST_F(Calls, ImagesAreCopiedAndLogsComeBackWithTheError) {
  TestRing ring = add_ring(0);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  std::memcpy(ram_.data() + (4 << 20), "good image", 10);
  const auto good = ring.call<wire::LibraryLoadReply>(Opcode::kLibraryLoad, wire::LibraryLoadArgs{0x40000000, 10});
  ASSERT_EQ(good.result, CUDA_SUCCESS);
  EXPECT_EQ(device_->last_image.size(), 10u);
  const auto bad = ring.call<wire::LibraryLoadReply>(Opcode::kLibraryLoad, wire::LibraryLoadArgs{0x40000001, 10});
  EXPECT_EQ(bad.result, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(bad.tail, "not good");

  wire::LibraryKernelArgs args{};
  args.library = good.reply.library;
  args.name_bytes = 5;
  const auto kernel = ring.call<wire::LibraryKernelReply>(Opcode::kLibraryKernel, args, "first");
  ASSERT_EQ(kernel.result, CUDA_SUCCESS);
  EXPECT_EQ(kernel.reply.info.parameters, 2u);
  EXPECT_EQ(kernel.tail.size(), 2 * sizeof(vgpu_parameter));

  make_context(ring);
  vgpu_launch launch{};
  launch.function = kernel.reply.kernel;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  ring.send(Opcode::kLaunch, wire::LaunchArgs{launch, 12}, "parameters!!");
  EXPECT_EQ(ring.call(Opcode::kContextSynchronize, wire::ContextSynchronizeArgs{ring.context}).result, CUDA_SUCCESS);
  EXPECT_EQ(device_->launches, 1);
  EXPECT_EQ(device_->launched.size(), 12u);
}

TEST_F(Calls, HostFunctionsGoToTheGuestAndBack) {
  TestRing ring = add_ring(0), callback_ring = add_ring(1);
  make_context(ring);
  const uint64_t poll = callback_ring.send(Opcode::kNextCallback, wire::NextCallbackArgs{0});
  ring.send(Opcode::kStreamCallback, wire::StreamCallbackArgs{0, 0x1234, 0x5678, VGPU_CALLBACK_HOST_FUNCTION});
  const auto first = callback_ring.answer<wire::NextCallbackReply>(poll);
  EXPECT_EQ(first.reply.callback.function, 0x1234u);
  EXPECT_EQ(device_->callbacks_done, 0);
  const uint64_t again = callback_ring.send(Opcode::kNextCallback, wire::NextCallbackArgs{first.reply.callback.token});
  TestRing::wait([&] { return device_->callbacks_done == 1; });
  ring.send(Opcode::kStreamCallback, wire::StreamCallbackArgs{0, 0x99, 0, VGPU_CALLBACK_STREAM});
  EXPECT_EQ(callback_ring.answer<wire::NextCallbackReply>(again).reply.callback.function, 0x99u);
}

TEST_F(Calls, AGraphKeepsItsHostMemoryWithoutAWait) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ASSERT_TRUE(add_region(1, 0x40000000, 4 << 20, kPage).ok());
  const uint64_t graph = ring.call<wire::GraphCreateReply>(Opcode::kGraphCreate).reply.graph;
  add_copy_node(ring, graph, linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x40000000, VGPU_MEMORY_HOST, 8));
  const auto exec =
      ring.call<wire::GraphInstantiateReply>(Opcode::kGraphInstantiate, wire::GraphInstantiateArgs{graph, 0});
  device_->hold_work(true);
  ring.send(Opcode::kExecLaunch, wire::ExecLaunchArgs{exec.reply.exec, 0});
  ring.call(Opcode::kMemoryInfo);
  std::atomic<bool> gone{false};
  ASSERT_TRUE(process_->memory().drop_region(1, [&] { gone = true; }).ok());
  EXPECT_FALSE(gone);
  EXPECT_EQ(device_->synchronizations, 0);  // the stream may capture by then
  device_->finish();
  EXPECT_TRUE(gone);
}

TEST_F(Calls, PrintedTextIsAnnouncedAndFetched) {
  TestRing ring = add_ring(0);
  device_->host()->print("kernel says hello\n");
  ring.call(Opcode::kMemoryInfo);
  EXPECT_EQ(ring.header->reply_flags, VGPU_REPLY_OUTPUT_PENDING);
  EXPECT_EQ(ring.call<wire::FetchOutputReply>(Opcode::kFetchOutput).tail, "kernel says hello\n");
  EXPECT_EQ(ring.header->reply_flags, 0u);
}

TEST_F(Calls, DefaultStreamOfAThreadIsMadeOncePerRingAndContext) {
  TestRing first = add_ring(0), second = add_ring(1);
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
  TestRing ring = add_ring(0);
  const uint64_t context = make_context(ring);
  const auto stream = ring.call<wire::StreamCreateReply>(Opcode::kStreamCreate, wire::StreamCreateArgs{0, 0});
  const auto event = ring.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0});
  EXPECT_EQ(ring.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_SUCCESS);
  EXPECT_EQ(ring.call(Opcode::kContextDestroy, wire::ContextDestroyArgs{context}).result, CUDA_SUCCESS);
  EXPECT_EQ(ring.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ring.call(Opcode::kStreamDestroy, wire::StreamDestroyArgs{stream.reply.stream}).result,
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ring.call(Opcode::kStreamQuery, wire::StreamQueryArgs{0}).result, CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Calls, ResetKeepsTheHandleOfTheContext) {
  TestRing ring = add_ring(0);
  const uint64_t context = make_context(ring);
  const auto event = ring.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0});
  EXPECT_EQ(ring.call(Opcode::kContextReset, wire::ContextResetArgs{context}).result, CUDA_SUCCESS);
  EXPECT_EQ(ring.call(Opcode::kEventQuery, wire::EventQueryArgs{event.reply.event}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ring.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0}).result, CUDA_SUCCESS);
}

TEST_F(Calls, ErrorsOfAsynchronousCallsSurfaceOnceAtASynchronisingCall) {
  TestRing ring = add_ring(0);
  make_context(ring);
  vgpu_launch launch{};
  ring.send(Opcode::kLaunch, wire::LaunchArgs{launch, 0});  // no such function
  EXPECT_EQ(ring.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  EXPECT_EQ(ring.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ring.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
}

// Several threads tell of ends, and places are used in turn: an earlier end that comes late must not hide a later one.
TEST_F(Calls, AnEarlierEndDoesNotTakeThePlaceOfALaterOne) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const auto copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x50000000, VGPU_MEMORY_HOST, 4);
  for (const uint32_t token : {0xfffffffeu, 3u, 0xffffffffu, 2u}) {
    ring.send(Opcode::kCopy, wire::CopyArgs{copy, 0, {1, token}});
    EXPECT_EQ(ring.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  }
  EXPECT_EQ(ring.done_word(1) >> 32, 3u);
}

TEST_F(Calls, ErrorsOfACopyGoToItsDoneWord) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const auto copy = linear_copy(device_base(), VGPU_MEMORY_DEVICE, 0x50000000, VGPU_MEMORY_HOST, 4);
  ring.send(Opcode::kCopy, wire::CopyArgs{copy, 0, {1, 9}});
  TestRing::wait([&] { return ring.done_word(1) == ((9ull << 32) | CUDA_ERROR_INVALID_VALUE); });
  EXPECT_EQ(ring.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{0}).result, CUDA_SUCCESS);
}

TEST_F(Calls, StickyErrorsStandInEveryRingAndAnswerEveryCall) {
  TestRing first = add_ring(0), second = add_ring(1);
  make_context(first);
  device_->host()->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(first.header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(second.header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(second.call(Opcode::kMemoryInfo).result, CUDA_ERROR_ILLEGAL_ADDRESS);
  device_->host()->print("last words");
  EXPECT_EQ(second.call<wire::FetchOutputReply>(Opcode::kFetchOutput).tail, "last words");
  EXPECT_EQ(add_ring(2).header->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Calls, SleepsWhenIdleAndWakesByTheKick) {
  TestRing ring = add_ring(0);
  ring.call(Opcode::kMemoryInfo);
  TestRing::wait([&] { return TestRing::load(ring.header->host_sleeping) == 1; });
  EXPECT_EQ(ring.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

TEST_F(Calls, DroppedRingFinishesItsRecordsFirst) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const wire::CopyInArgs args{device_base(), 0, 1, 0};
  for (int i = 0; i < 100; ++i) ring.send(Opcode::kCopyIn, args, "z");
  std::atomic<bool> gone{false};
  record_loop_->drop_ring(0, [&] { gone = true; });
  TestRing::wait([&] { return gone.load(); });
  EXPECT_EQ(ring.header->head, ring.tail);
  std::memset(ram_.data(), 0, VGPU_RING_BYTES);
  last_seq_ = 101;
  EXPECT_EQ(add_ring(0).call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
