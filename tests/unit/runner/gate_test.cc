// The gate of one process: time slices as it cuts them, what it tells and asks the arbiter, who is this test, and what
// a guest feels of it.
#include "backend/runner/execution/gate.h"

#include <gtest/gtest.h>

#include <thread>

#include "memory/base/futex.h"
#include "tests/unit/runner/gate_fixture.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

TEST_F(GateTest, NobodyIsAskedWhileThereIsNoArbiter) {
  grant_page_->no_arbiter = 1;
  for (int i = 0; i < 100; ++i) view_.enter(0, 1);
  view_.pause();
  EXPECT_GT(device_.begun, 2);  // measured all the same
  while (!device_.ended.empty()) device_.finish_time_slice(kUnit);
  EXPECT_EQ(gate().begun + gate().ended + gate().asked, 0u);
  EXPECT_FALSE(rung());
}

TEST_F(GateTest, ShortWorkIsGatheredToAQuantumByAndBy) {
  gate().open = 1;
  std::vector<uint32_t> sizes;
  uint32_t units = 0;
  for (int i = 0; i < 300; ++i) {
    const bool entered = view_.enter(0, 1);
    if (!device_.ended.empty()) {
      sizes.push_back(std::exchange(units, 0));
      device_.finish_time_slice(sizes.back() * kUnit);
    }
    EXPECT_TRUE(entered || view_.enter(0, 1));  // a time slice that is larger than any before goes alone
    ++units;
  }
  ASSERT_GE(sizes.size(), 8u);
  EXPECT_EQ(sizes[0], 1u);
  for (size_t i = 1; i < sizes.size(); ++i) EXPECT_LE(sizes[i], std::min(100u, 2 * sizes[i - 1]));
  EXPECT_GE(sizes.back(), 64u);
  EXPECT_EQ(gate().busy_ns, gate().busy_ns / kUnit * kUnit);
  EXPECT_FALSE(rung());
}

TEST_F(GateTest, WorkThatIsSuddenlyLongIsNoticedAfterOneTimeSlice) {
  gate().open = 1;
  EXPECT_TRUE(view_.enter(0, 1));
  view_.pause();
  device_.finish_time_slice(kUnit / 1000);  // ten thousand of these would fit into a quantum
  int entered = 0;
  while (entered < 100 && view_.enter(0, 1)) ++entered;
  EXPECT_EQ(entered, 2);
  device_.finish_time_slice(2 * 1000 * kUnit);
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_FALSE(view_.enter(0, 1));
}

TEST_F(GateTest, WhoPausesBetweenLaunchesDoesNotWaitForTheEndsOfTimeSlices) {
  gate().open = 1;
  grant_page_->quantum_ns = 1000 * kMicrosecond;  // ends before a time slice has as many units as would fit
  int waits = 0, slices = 0;
  for (int i = 0; i < 200; ++i) {
    clock_.pass(std::chrono::microseconds(150 + 100 * (i % 2)));
    const int before = device_.begun;
    if (!view_.enter(0, 1)) {
      ++waits;
      device_.finish_time_slice(10 * kMicrosecond);
      EXPECT_TRUE(view_.enter(0, 1));
    } else if (device_.begun > before) {  // the one before is over by now, and the next has begun
      if (!device_.ended.empty()) device_.finish_time_slice(10 * kMicrosecond);
    }
    slices += device_.begun - before;
  }
  EXPECT_GT(slices, 20);
  EXPECT_LT(waits, slices / 4);
}

TEST_F(GateTest, LongWorkStandsAlone) {
  gate().open = 1;
  view_.enter(0, 1);
  view_.pause();
  device_.finish_time_slice(1000 * kUnit);
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_FALSE(view_.enter(0, 1));  // and none behind it
  device_.finish_time_slice(1000 * kUnit);
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_EQ(device_.begun, 3);
}

TEST_F(GateTest, AClosedGateIsPassedWhenItIsGranted) {
  EXPECT_FALSE(view_.enter(2, 1));
  EXPECT_FALSE(view_.enter(2, 1));
  EXPECT_EQ(gate(2).asked, 1u);
  EXPECT_TRUE(rung());
  EXPECT_EQ(gate(2).begun, 0u);
  EXPECT_FALSE(view_.moved());
  gate(2).granted = 1;
  EXPECT_TRUE(view_.moved());
  EXPECT_TRUE(view_.enter(2, 1));
  EXPECT_EQ(device_.begun, 1);
  EXPECT_EQ(gate(2).begun, 1u);
  view_.pause();
  device_.finish_time_slice(kUnit);
  EXPECT_TRUE(rung());  // others may wait for its end
  EXPECT_EQ(gate(2).ended, 1u);
  EXPECT_EQ(gate(2).busy_ns, kUnit);
}

TEST_F(GateTest, WhoWaitsForOneEngineKeepsNoOther) {
  gate(1).open = 1;
  EXPECT_TRUE(view_.enter(1, 1));
  EXPECT_FALSE(view_.enter(0, 1));
  EXPECT_TRUE(device_.ended.empty());
  view_.wait(std::chrono::milliseconds(1));
  EXPECT_EQ(device_.ended.size(), 1u);
}

TEST_F(GateTest, WhoWaitsForItsWorkEndsItsTimeSliceIfOthersWantTheEngine) {
  gate().open = 1;
  EXPECT_TRUE(view_.enter(0, 1));
  view_.rest();
  EXPECT_TRUE(device_.ended.empty());
  gate().open = 0;
  view_.rest();
  EXPECT_EQ(device_.ended.size(), 1u);
  view_.rest();
  EXPECT_EQ(device_.ended.size(), 1u);
}

TEST_F(GateTest, ASleeperIsWokenByTheGrant) {
  EXPECT_FALSE(view_.enter(0, 1));
  std::thread arbiter([this] {
    gate().granted = 1;
    futex_wake(&gate().granted);
  });
  while (!view_.enter(0, 1)) view_.wait(std::chrono::milliseconds(1));
  arbiter.join();
  EXPECT_EQ(device_.begun, 1);
}

TEST_F(GateTest, ASleeperAtTwoGatesIsWokenByEither) {
  EXPECT_FALSE(view_.enter(0, 1));
  EXPECT_FALSE(view_.enter(1, 1));
  EXPECT_TRUE(view_.waits(0) && view_.waits(1));
  std::thread arbiter([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate(0).granted = 1;
    futex_wake(&gate(0).granted);
  });
  view_.wait(std::chrono::seconds(20));
  arbiter.join();
  EXPECT_TRUE(view_.moved());
  EXPECT_FALSE(view_.waits(0));
  EXPECT_TRUE(view_.waits(1));
  EXPECT_TRUE(view_.enter(0, 1));
}

TEST_F(GateTest, WithoutAnArbiterEverybodyEnters) {
  EXPECT_FALSE(view_.enter(0, 1));
  grant_page_->no_arbiter = 1;
  EXPECT_TRUE(view_.enter(0, 1));
  view_.pause();
  EXPECT_EQ(device_.begun, 1);
}

TEST_F(GateTest, NoMoreThanTheDepthIsInFlightAtAnOpenGate) {
  gate().open = 1;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(view_.enter(0, 1));
    view_.pause();
  }
  EXPECT_FALSE(view_.enter(0, 1));
  EXPECT_EQ(device_.begun, 2);
  device_.finish_time_slice(100 * kUnit);
  EXPECT_TRUE(view_.moved());
  EXPECT_TRUE(view_.enter(0, 1));
  EXPECT_EQ(device_.begun, 3);
}

TEST_F(GateTest, OfGridSlicesAsManyAreInFlightAsHalfAQuantumHolds) {
  gate().open = 1;
  EXPECT_TRUE(view_.enter_alone(0));
  view_.pause();
  device_.finish_time_slice(10 * kUnit);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(view_.enter_alone(0)) << i;
    view_.pause();
  }
  EXPECT_FALSE(view_.enter_alone(0));
}

// A guest whose gates are closed.
class GatedGuest : public Guest {
 protected:
  GatedGuest() {
    grant_page_->depth = 2;
    process_->gate().connect(grant_page_.get(), kSlot, UniqueFd());
  }
  ~GatedGuest() override {
    open();
    record_loop_ = nullptr;  // before the grant page goes
  }
  void open() {
    grant_page_->no_arbiter = 1;
    for (Gate& gate : grant_page_->gates[kSlot]) futex_wake(&gate.granted);
  }
  uint64_t make_event(TestRing& ring) {
    return ring.call<wire::EventCreateReply>(wire::Opcode::kEventCreate, wire::EventCreateArgs{0, 0}).reply.event;
  }
  // `before` is recorded at once, `after` behind a copy that waits at its gate.
  void record_around_a_copy(TestRing& ring, uint64_t before, uint64_t after) {
    ring.send(wire::Opcode::kEventRecord, wire::EventRecordArgs{before, 0, 0, 0});
    ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 1, 0}, "a");
    ring.send(wire::Opcode::kEventRecord, wire::EventRecordArgs{after, 0, 0, 0});
  }
  // The call is not answered before the copy may pass.
  void expect_success_behind_the_copy(TestRing& ring, uint64_t call) {
    settle();
    EXPECT_NE(TestRing::load(ring.header->reply_seq), call);
    grant_page_->gates[kSlot][1].granted = 1;
    futex_wake(&grant_page_->gates[kSlot][1].granted);
    EXPECT_EQ(ring.answer(call).result, CUDA_SUCCESS);
  }
  static int query(TestRing& ring, uint64_t event) {
    return ring.call(wire::Opcode::kEventQuery, wire::EventQueryArgs{event}).result;
  }

  std::unique_ptr<GrantPage> grant_page_ = std::make_unique<GrantPage>();
};

TEST_F(GatedGuest, WhatHasNothingToDoWithTheGateGoesPast) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const uint64_t before = make_event(ring), after = make_event(ring);
  record_around_a_copy(ring, before, after);
  EXPECT_EQ(query(ring, before), CUDA_SUCCESS);
  EXPECT_EQ(ring.call<wire::MemoryInfoReply>(wire::Opcode::kMemoryInfo).result, CUDA_SUCCESS);
  EXPECT_EQ(grant_page_->gates[kSlot][1].begun, 0u);

  EXPECT_EQ(query(ring, after), CUDA_ERROR_NOT_READY);  // it is not even recorded
  const uint64_t late = ring.send(wire::Opcode::kEventSynchronize, wire::EventSynchronizeArgs{after});
  expect_success_behind_the_copy(ring, late);
  EXPECT_EQ(grant_page_->gates[kSlot][1].begun, 1u);
}

// Else two virtual GPUs, each with a grant that it does not take because it waits for what the other has, wait for
// ever.
TEST_F(GatedGuest, NoEngineWaitsForAnothersGate) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const auto stream = [&] {
    return ring.call<wire::StreamCreateReply>(wire::Opcode::kStreamCreate, wire::StreamCreateArgs{0, 0}).reply.stream;
  };
  const uint64_t kernels = stream(), copies = stream();
  Gate &compute = grant_page_->gates[kSlot][0], &copy_in = grant_page_->gates[kSlot][1];
  ring.send(wire::Opcode::kFill, wire::FillArgs{{device_base() + 8, 0, 1, 1, 1, 7}, kernels, {}});
  TestRing::wait([&] { return compute.asked == 1; });
  for (const char* text : {"a", "b"}) {
    ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), copies, 1, 0}, text);
  }
  TestRing::wait([&] { return copy_in.asked == 1; });
  for (uint32_t slice = 1; slice <= 2; ++slice) {
    TestRing::wait([&] { return copy_in.asked == slice; });
    copy_in.granted = slice;
    futex_wake(&copy_in.granted);
    TestRing::wait([&] { return copy_in.ended == slice; });
  }
  EXPECT_EQ(*reinterpret_cast<char*>(device_base()), 'b');
  EXPECT_EQ(compute.begun, 0u);
  compute.granted = 1;
  futex_wake(&compute.granted);
  TestRing::wait([&] { return compute.ended == 1; });
}

TEST_F(GatedGuest, WhoWaitsForEarlyWorkDoesNotWaitForWhatIsQueuedBehindIt) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const uint64_t early = make_event(ring);
  Gate& copy_in = grant_page_->gates[kSlot][1];
  for (const char* text : {"a", "b"}) {
    ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 1, 0}, text);
    if (*text == 'a') ring.send(wire::Opcode::kEventRecord, wire::EventRecordArgs{early, 0, 0, 0});
  }
  TestRing::wait([&] { return copy_in.asked == 1; });
  const uint64_t wait = ring.send(wire::Opcode::kEventSynchronize, wire::EventSynchronizeArgs{early});
  settle();
  copy_in.granted = 1;
  futex_wake(&copy_in.granted);
  EXPECT_EQ(ring.answer(wait).result, CUDA_SUCCESS);
  EXPECT_EQ(copy_in.begun, 1u);
}

TEST_F(GatedGuest, AnEventGoesWhenNothingThatWaitsNeedsIt) {
  TestRing ring = add_ring(0);
  make_context(ring);
  const uint64_t done = make_event(ring), needed = make_event(ring);
  record_around_a_copy(ring, done, needed);
  EXPECT_EQ(ring.call(wire::Opcode::kEventDestroy, wire::EventDestroyArgs{done}).result, CUDA_SUCCESS);
  EXPECT_EQ(grant_page_->gates[kSlot][1].begun, 0u);
  const uint64_t late = ring.send(wire::Opcode::kEventDestroy, wire::EventDestroyArgs{needed});
  expect_success_behind_the_copy(ring, late);
}

TEST_F(GatedGuest, OrderIsKeptBehindTheGate) {
  TestRing first = add_ring(0), second = add_ring(1);
  second.context = make_context(first);
  for (int i = 0; i < 3000; ++i) {  // more than may wait
    TestRing& ring = i % 2 ? second : first;
    ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 4, 0}, fmt::format("{:04}", i));
    if (i == 1500) open();
  }
  const auto out = first.call<wire::CopyOutReply>(wire::Opcode::kCopyOut, wire::CopyOutArgs{device_base(), 4, 0});
  EXPECT_EQ(out.tail, "2999");
}

TEST_F(GatedGuest, AFailedProcessKeepsNoGrant) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 1, 0}, "z");
  Gate& gate = grant_page_->gates[kSlot][1];
  TestRing::wait([&] { return gate.asked == 1; });
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  settle();
  EXPECT_EQ(gate.begun, 0u);
  gate.granted = 1;
  futex_wake(&gate.granted);
  TestRing::wait([&] { return gate.ended == 1; });
  EXPECT_EQ(gate.begun, 1u);
  EXPECT_EQ(ring.call<wire::MemoryInfoReply>(wire::Opcode::kMemoryInfo).result, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(GatedGuest, ARingGoesWhenItsWaitingWorkIsDone) {
  TestRing ring = add_ring(0);
  make_context(ring);
  ring.send(wire::Opcode::kCopyIn, wire::CopyInArgs{device_base(), 0, 1, 0}, "z");
  TestRing::wait([&] { return grant_page_->gates[kSlot][1].asked == 1; });
  std::atomic<bool> gone{false};
  record_loop_->drop_ring(0, [&] { gone = true; });
  settle();
  EXPECT_FALSE(gone);
  open();
  TestRing::wait([&] { return gone.load(); });
  EXPECT_EQ(*reinterpret_cast<char*>(device_base()), 'z');
}

}  // namespace
}  // namespace bandsaw::runner
