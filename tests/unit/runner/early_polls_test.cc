// Host functions that return while the record loop is kept in the device by what waits for them.
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

class EarlyPolls : public Guest {
 protected:
  uint64_t poll(uint64_t finished) { return polls_.send(Opcode::kNextCallback, wire::NextCallbackArgs{finished}); }
  // The function that the poll is answered with.
  vgpu_callback told(uint64_t poll) { return polls_.answer<wire::NextCallbackReply>(poll).reply.callback; }
  void put(char value) { ring_.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 1, 0}, std::string(1, value)); }
  void begin_function(uint64_t number) {
    ring_.send(Opcode::kStreamCallback, wire::StreamCallbackArgs{0, number, 0, VGPU_CALLBACK_HOST_FUNCTION});
  }
  // Its caller is kept until so many functions have returned.
  void copy_behind(int functions) {
    device_->copies_need_callbacks = functions;
    ring_.send(
        Opcode::kCopy,
        wire::CopyArgs{
            linear_copy(device_base() + 8, VGPU_MEMORY_DEVICE, device_base() + 16, VGPU_MEMORY_DEVICE, 4), 0, {2, 7}});
  }
  bool copied() {
    return TestRing::wait([&] { return ring_.done_word(2) == 7ull << 32; });
  }

  TestRing ring_ = add_ring(0), polls_ = add_ring(1);
};

TEST_F(EarlyPolls, AFunctionReturnsAlthoughWorkBehindItKeepsTheRecordLoop) {
  make_context(ring_);
  const uint64_t first = poll(0);
  begin_function(1);
  copy_behind(1);
  const vgpu_callback function = told(first);
  EXPECT_EQ(function.function, 1u);
  poll(function.token);
  EXPECT_TRUE(copied());
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);  // the order of records goes on
}

TEST_F(EarlyPolls, ManyFunctionsRunMeanwhile) {
  constexpr uint64_t kFunctions = 300;
  make_context(ring_);
  const uint64_t first = poll(0);
  for (uint64_t number = 1; number <= kFunctions; ++number) begin_function(number);
  copy_behind(kFunctions);
  vgpu_callback function = told(first);
  for (uint64_t number = 2; number <= kFunctions; ++number) {
    put('a');  // stays behind the copy
    function = told(poll(function.token));
    ASSERT_EQ(function.function, number);
  }
  poll(function.token);
  EXPECT_TRUE(copied());
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

TEST_F(EarlyPolls, TheFirstPollMayComeLate) {
  make_context(ring_);
  begin_function(1);
  copy_behind(1);
  poll(told(poll(0)).token);
  EXPECT_TRUE(copied());
}

// The guest's callback thread begins with the first function.
TEST_F(EarlyPolls, TheirRingMayComeLate) {
  make_context(ring_);
  begin_function(1);
  copy_behind(1);
  TestRing::wait([&] { return device_->copies_begun == 1; });
  TestRing late = add_ring(2);
  const auto poll = [&](uint64_t finished) {
    return late.send(Opcode::kNextCallback, wire::NextCallbackArgs{finished});
  };
  poll(late.answer<wire::NextCallbackReply>(poll(0)).reply.callback.token);
  EXPECT_TRUE(copied());
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

TEST_F(EarlyPolls, RecordsBeforeAndAfterAnEarlyOneKeepTheirOrder) {
  make_context(ring_);
  const uint64_t first = poll(0);
  begin_function(1);
  copy_behind(1);
  put('a');
  const vgpu_callback function = told(first);
  put('b');
  poll(function.token);
  put('c');
  EXPECT_TRUE(copied());
  const auto out = ring_.call<wire::CopyOutReply>(Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 1, 0});
  EXPECT_EQ(out.tail, "c");
}

TEST_F(EarlyPolls, TheProcessComesToAStandstillAfterwards) {
  make_context(ring_);
  const uint64_t first = poll(0);
  begin_function(1);
  copy_behind(1);
  put('a');
  poll(told(first).token);
  std::atomic<int> error{-1};
  process_->standstill().begin(std::chrono::seconds(5), [&](int outcome) { error = outcome; });
  record_loop_->wake();
  EXPECT_TRUE(TestRing::wait([&] { return error == 0; })) << error;
  process_->standstill().end();
  record_loop_->wake();
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
}

// A driver's lock may be held by a call that waits for all work.
TEST_F(EarlyPolls, AFunctionReturnsAlthoughTheEndOfATimeSliceKeepsTheRecordLoop) {
  const auto grant_page = std::make_unique<GrantPage>();
  grant_page->no_arbiter = 1;
  process_->gate().connect(grant_page.get(), 0, UniqueFd());
  make_context(ring_);
  const uint64_t first = poll(0);
  begin_function(1);
  const vgpu_callback function = told(first);
  device_->ends_need_callbacks = 1;
  put('a');
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // nothing else comes: the time slice ends
  poll(function.token);
  EXPECT_EQ(ring_.call(Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  device_->ends_need_callbacks = 0;  // the record loop ends whatever failed
  record_loop_ = nullptr;            // before the grant page goes
}

}  // namespace
}  // namespace bandsaw::runner
