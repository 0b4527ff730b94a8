// Long copies of a guest pass their gates in pieces; what it feels of that.
#include "tests/unit/runner/pieces.h"

namespace bandsaw::runner {
namespace {

TEST_F(CopyPiecesTest, AtAClosedGateEachPieceIsATimeSlice) {
  copy_in(make_stream());
  grant(1);
  grant(2);
  settle();
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, kClosedPiece}));
  EXPECT_EQ(ring_.done_word(2), 0u);
  grant(3);
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, kClosedPiece, kBytes - 2 * kClosedPiece}));
  EXPECT_EQ(std::memcmp(memory(), host(), kBytes), 0);
  EXPECT_EQ(gate().asked, 3u);
  EXPECT_EQ(gate().ended, 3u);
}

TEST_F(CopyPiecesTest, AShortCopyOfAnotherStreamGoesInBetween) {
  const uint64_t large = make_stream(), small = make_stream();
  copy_in(large);
  grant(1);
  TestRing::wait([&] { return gate().asked == 2; });  // for the next piece
  short_copy(small, 'x');
  settle();
  grant(2);
  TestRing::wait([&] { return device().all_given().size() == 2; });
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, 1}));
  short_copy(small, 'y');
  settle();
  grant(3);  // and one piece after it
  grant(4);
  grant(5);
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, 1, kClosedPiece, 1, kBytes - 2 * kClosedPiece}));
}

// As the legacy stream does on the device.
TEST_F(CopyPiecesTest, ThoseOfTheLegacyStreamKeepOnlyStreamsOfItsOrder) {
  const uint64_t apart = make_stream(CU_STREAM_NON_BLOCKING), other = make_stream();
  copy_in(0);
  grant(1);
  const vgpu_fill fill{.address = device_base() + 8, .width = 1, .height = 1, .element_bytes = 1, .value = 9};
  gate(Engine::kCompute).open = 1;
  ring_.send(Opcode::kFill, wire::FillArgs{fill, apart, {3, 1}});
  TestRing::wait([&] { return ring_.done_word(3) == done(1); });
  ring_.send(Opcode::kFill, wire::FillArgs{fill, other, {4, 2}});
  settle();
  EXPECT_EQ(ring_.done_word(4), 0u);
  EXPECT_EQ(ring_.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{apart}).result, CUDA_SUCCESS);
  grant(2);
  grant(3);
  TestRing::wait([&] { return ring_.done_word(4) == done(2); });
}

TEST(StreamOrderTest, AStreamThatIsApartWaitsForItselfAlone) {
  constexpr uint64_t kLegacyKey = VGPU_STREAM_LEGACY, kApart = 100, kOther = 101, kThird = 102;
  ApartStreams apart;
  StreamOrder order(&apart);
  order.add(kApart);  // a handle that was only guessed
  apart.add(kApart);
  EXPECT_FALSE(order.may_work(kApart));
  order.remove(kApart);
  EXPECT_TRUE(order.may_work(kLegacyKey));
  order.add(kApart);
  EXPECT_FALSE(order.may_work(kApart) || order.may_ask(kApart));
  EXPECT_TRUE(order.may_work(kLegacyKey) && order.may_ask(kLegacyKey) && order.may_work(kOther));
  order.add(kLegacyKey);
  EXPECT_FALSE(order.may_work(kOther) || order.may_work(kLegacyKey));
  EXPECT_TRUE(order.may_ask(kOther));
  order.remove(kApart);
  EXPECT_TRUE(order.may_work(kApart));
  order.remove(kLegacyKey);
  order.add(kOther);
  EXPECT_FALSE(order.may_work(kLegacyKey) || order.may_ask(kLegacyKey));
  EXPECT_TRUE(order.may_work(kThird) && order.may_work(kApart));
}

TEST_F(CopyPiecesTest, TwoLongCopiesTakeTurns) {
  const uint64_t first = make_stream(), second = make_stream();
  copy_in(first, 7);
  grant(1);
  const vgpu_copy half =
      linear_copy(device_base(), VGPU_MEMORY_DEVICE, kPiecesHost, VGPU_MEMORY_HOST, 10 * PieceSize::kStep);
  ring_.send(Opcode::kCopy, wire::CopyArgs{half, second, {3, 8}});
  settle();
  for (uint32_t number = 2; number <= 5; ++number) grant(number);
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(ring_.done_word(3), done(8));
  EXPECT_EQ(device().all_given(),
            (Sizes{kClosedPiece, kClosedPiece, kClosedPiece, 4 * PieceSize::kStep, kBytes - 2 * kClosedPiece}));
}

TEST_F(CopyPiecesTest, WhatIsBehindItOnItsStreamComesBehindIt) {
  const uint64_t stream = make_stream();
  const uint64_t event =
      ring_.call<wire::EventCreateReply>(Opcode::kEventCreate, wire::EventCreateArgs{0, 0}).reply.event;
  copy_in(stream);
  short_copy(stream, '!');
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{event, stream, 0, 0});
  grant(1);
  EXPECT_EQ(ring_.call(Opcode::kEventQuery, wire::EventQueryArgs{event}).result, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ring_.call(Opcode::kStreamQuery, wire::StreamQueryArgs{stream}).result, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ring_.call<wire::MemoryInfoReply>(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  const uint64_t synchronize = ring_.send(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{stream});
  settle();
  EXPECT_NE(TestRing::load(ring_.header->reply_seq), synchronize);
  for (uint32_t number = 2; number <= 4; ++number) grant(number);
  EXPECT_EQ(ring_.answer(synchronize).result, CUDA_SUCCESS);
  EXPECT_EQ(device().all_given().size(), 4u);
  EXPECT_EQ(device().waiting(), 0u);
  EXPECT_EQ(static_cast<char>(memory()[0]), '!');
}

TEST_F(CopyPiecesTest, AtAnOpenGateTwoLargerOnesAreInFlight) {
  gate(Engine::kCopyOut).open = 1;
  device().hold_time_slices = true;
  const uint64_t stream = make_stream();
  // Rows of 64 KiB with gaps on the host's side.
  ASSERT_TRUE(add_region(2, kPiecesHost + (16 << 20), kPiecesHostOffset, 2 << 20).ok());
  vgpu_copy copy = linear_copy(kPiecesHost + (16 << 20), VGPU_MEMORY_HOST, device_base(), VGPU_MEMORY_DEVICE, 64 << 10);
  copy.height = 16;
  copy.source.pitch = 64 << 10;
  copy.destination.pitch = 128 << 10;
  for (uint64_t i = 0; i < kBytes; ++i) memory()[i] = static_cast<std::byte>(i / 1000);
  grant_page_->quantum_ns = kPiecesQuantumNs / 2;
  ring_.send(Opcode::kCopy, wire::CopyArgs{copy, stream, {2, 9}});
  TestRing::wait([&] { return device().all_given().size() == 2; });
  settle();
  EXPECT_EQ(gate(Engine::kCopyOut).begun, 2u);
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, kClosedPiece}));
  device().end_time_slice();
  EXPECT_TRUE(waits_until_done(9));
  EXPECT_EQ(gate(Engine::kCopyOut).asked, 0u);
  for (uint64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(std::memcmp(host() + row * (128 << 10), memory() + row * (64 << 10), 64 << 10), 0) << row;
  }
  device().end_time_slice();
  device().end_time_slice();
}

TEST_F(CopyPiecesTest, WhoIsAloneMovesAQuantumAtATime) {
  gate().open = 1;
  copy_in(make_stream());
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kBytes}));  // less than one and a half
  EXPECT_LT(kBytes, kOpenPiece + kOpenPiece / 2);
}

TEST_F(CopyPiecesTest, WithoutAnArbiterNothingIsCut) {
  grant_page_->no_arbiter = 1;
  copy_in(make_stream());
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kBytes}));
}

TEST_F(CopyPiecesTest, FillsAreCutToo) {
  const uint64_t stream = make_stream();
  const vgpu_fill fill{
      .address = device_base(), .pitch = 0, .width = kBytes, .height = 1, .element_bytes = 1, .value = 5};
  ring_.send(Opcode::kFill, wire::FillArgs{fill, stream, {2, 7}});
  for (uint32_t number = 1; number <= 3; ++number) grant(number, Engine::kCompute);
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, kClosedPiece, kBytes - 2 * kClosedPiece}));
  EXPECT_EQ(static_cast<int>(memory()[kBytes - 1]), 5);
}

// Nothing runs yet, so that no gate is in its way.
TEST_F(CopyPiecesTest, ANodeOfAGraphIsNotCut) {
  const uint64_t stream = make_stream();
  const wire::CaptureBeginArgs begin{stream, CU_STREAM_CAPTURE_MODE_RELAXED, 0, 0, 0, 0};
  EXPECT_EQ(ring_.call(Opcode::kCaptureBegin, begin).result, CUDA_SUCCESS);
  copy_in(stream);
  EXPECT_TRUE(waits_until_done(7));
  EXPECT_EQ(device().all_given(), (Sizes{kBytes}));
  EXPECT_EQ(gate().asked, 0u);
  EXPECT_EQ(ring_.call<wire::CaptureEndReply>(Opcode::kCaptureEnd, wire::CaptureEndArgs{stream}).result, CUDA_SUCCESS);
  short_copy(stream, 'x');
  grant(1);
}

TEST_F(CopyPiecesTest, APieceThatIsRefusedEndsTheCopy) {
  device().fail_at = 1;
  const uint64_t stream = make_stream();
  copy_in(stream);
  grant(1);
  grant(2);
  EXPECT_TRUE(waits_until_done(7, CUDA_ERROR_INVALID_ADDRESS_SPACE));
  device().fail_at = ~size_t{0};
  short_copy(stream, 'x');
  grant(3);
  EXPECT_EQ(ring_.call(Opcode::kStreamSynchronize, wire::StreamSynchronizeArgs{stream}).result, CUDA_SUCCESS);
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece, 1}));
}

// The region that a piece still reads is held until that has ended.
TEST_F(CopyPiecesTest, ItIsDoneWhenItsLastPieceHasEnded) {
  device().hold_work(true);
  copy_in(make_stream());
  for (uint32_t number = 1; number <= 3; ++number) grant(number);
  settle();
  EXPECT_EQ(device().waiting(), 3u);
  EXPECT_EQ(ring_.done_word(2), 0u);
  device().next_result = CUDA_ERROR_LAUNCH_FAILED;  // of the first
  device().finish();
  EXPECT_TRUE(waits_until_done(7, CUDA_ERROR_LAUNCH_FAILED));
}

TEST_F(CopyPiecesTest, AFailedProcessKeepsNoGrantAndLeavesNoCopyBehind) {
  copy_in(make_stream());
  grant(1);
  TestRing::wait([&] { return gate().asked == 2; });
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(waits_until_done(7, CUDA_ERROR_ILLEGAL_ADDRESS));
  gate().granted = 2;
  futex_wake(&gate().granted);
  TestRing::wait([&] { return gate().ended == 2; });
  EXPECT_EQ(device().all_given(), (Sizes{kClosedPiece}));
}

TEST_F(CopyPiecesTest, ARingGoesWhenItsPiecesAreIssued) {
  copy_in(make_stream());
  grant(1);
  std::atomic<bool> gone{false};
  record_loop_->drop_ring(0, [&] { gone = true; });
  settle();
  EXPECT_FALSE(gone);
  grant(2);
  grant(3);
  TestRing::wait([&] { return gone.load(); });
  EXPECT_EQ(std::memcmp(memory(), host(), kBytes), 0);
}

// Pieces wait on their stream for something that this process has yet to do, behind them.
TEST_F(CopyPiecesTest, WhatTheyWaitForIsNotKeptBehindThem) {
  gate().open = 1;
  grant_page_->quantum_ns = kPiecesQuantumNs / 4;
  device().hold_time_slices = true;
  copy_in(make_stream());
  TestRing::wait([&] { return device().all_given().size() == 2; });
  const uint64_t free = ring_.send(Opcode::kMemoryFree, wire::MemoryFreeArgs{device_base()});  // behind all work
  settle();
  EXPECT_EQ(device().all_given().size(), 2u);
  EXPECT_EQ(ring_.answer(free).result, CUDA_SUCCESS);  // a second later
  EXPECT_GT(device().all_given().size(), 2u);
  EXPECT_EQ(std::memcmp(memory(), host(), kBytes), 0);
  while (!device().ended.empty()) device().end_time_slice();
}

}  // namespace
}  // namespace bandsaw::runner
