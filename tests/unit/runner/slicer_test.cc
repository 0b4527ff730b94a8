// Launches that are cut into grid slices, as the device gets them and as the guest sees them. The device is a fake:
// that the rewritten kernels do the same is tests/direct's and tools/bench slices' to say.
#include "backend/runner/slicing/slicer.h"

#include "tests/unit/runner/sliced.h"
#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

TEST_F(Sliced, BlocksComeInOrderAndWhatFollowsComesAfterThem) {
  launch(10);
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{make_event(), 0, 0, 0});
  launch(2);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+3", "9+1", "record", "0+2"}));
  EXPECT_EQ(counters().kernels, 1u);
  EXPECT_EQ(counters().sliceable, 1u);
  EXPECT_EQ(counters().launches, 2u);
  EXPECT_EQ(counters().grid_slices, 5u);
  EXPECT_EQ(process_->usage_page().slot().launches, 2u);  // as the program counts
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

TEST_F(Sliced, SoManyGridSlicesAreInFlight) {
  device().hold = true;
  launch(12);
  wait_for(2);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
  device().end_grid_slice();
  wait_for(3);
  EXPECT_EQ(device().seen().size(), 3u);
  device().end_grid_slice();
  wait_for(4);
  const uint64_t after = send_synchronize();
  EXPECT_EQ(ring_.answer(after).result, CUDA_SUCCESS);  // the last ones are on the device: it may wait there
  EXPECT_EQ(device().seen().back(), "9+3");
}

TEST_F(Sliced, EveryGridSliceAsksAtAClosedGateAndGoesOnWhereItStopped) {
  gate().open = 0;
  launch(9);
  for (uint32_t number = 1; number <= 3; ++number) {
    TestRing::wait([&] { return gate().asked == number; });
    EXPECT_EQ(device().seen().size(), number - 1);
    grant(number);
    wait_for(number);
  }
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+3"}));
  EXPECT_EQ(gate().begun, 3u);
  TestRing::wait([&] { return gate().ended == 3; });
}

TEST_F(Sliced, ALaunchAtTheGateIsPassedByWhatHasNothingToDoWithIt) {
  const uint64_t busy = make_stream(), other = make_stream();
  gate().open = 0;
  launch(3, busy);
  TestRing::wait([&] { return gate().asked == 1; });
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{make_event(), busy, 0, 0});
  ring_.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), other, 1, 0}, "x");
  EXPECT_EQ(synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"copy"}));
  grant(1);
  EXPECT_EQ(synchronize(busy), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"copy", "0+3", "record"}));
  EXPECT_EQ(gate().asked, 1u);
}

TEST_F(Sliced, WhatTheDeviceDoesNotLaunchInGridSlicesHasTheFirstOnesTimeSlice) {
  gate().open = 0;
  device().fail_at = 0;
  launch(12);
  TestRing::wait([&] { return gate().asked == 1; });
  grant(1);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"whole 12"}));
  TestRing::wait([&] { return gate().ended == 1; });
  EXPECT_EQ(gate().asked, 1u);
  EXPECT_EQ(gate().begun, 1u);
}

TEST_F(Sliced, AFailedProcessGivesBackWhatItsFirstGridSliceAskedFor) {
  gate().open = 0;
  launch(12);
  TestRing::wait([&] { return gate().asked == 1; });
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  grant(1);
  TestRing::wait([&] { return gate().ended == 1; });
  EXPECT_EQ(synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(device().seen().empty());
}

TEST_F(Sliced, OtherStreamsAndWhatIsOnlyMadeGoPast) {
  const uint64_t busy = make_stream(), other = make_stream(), event = make_event(), before = make_event();
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{before, busy, 0, 0});
  device().hold = true;
  launch(12, busy);
  wait_for(3);
  ring_.send(Opcode::kCopyIn, wire::CopyInArgs{device_base(), other, 1, 0}, "x");
  wait_for(4);
  EXPECT_EQ(device().seen(), (Seen{"record", "0+3", "3+3", "copy"}));
  EXPECT_EQ(synchronize(other), CUDA_SUCCESS);
  EXPECT_NE(make_event(), 0u);
  EXPECT_EQ(ring_.call(Opcode::kEventQuery, wire::EventQueryArgs{before}).result, CUDA_SUCCESS);
  EXPECT_EQ(ring_.call(Opcode::kStreamQuery, wire::StreamQueryArgs{busy}).result, CUDA_ERROR_NOT_READY);
  // An event that is to be recorded behind the launch, and who waits for it.
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{event, busy, 0, 0});
  ring_.send(Opcode::kStreamWaitEvent, wire::StreamWaitEventArgs{other, event, 0, 0});
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

TEST_F(Sliced, AnErrorOfALaterGridSliceEndsTheLaunchAndIsSaidOnce) {
  device().fail_at = 2;
  launch(12);
  EXPECT_EQ(synchronize(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
}

TEST_F(Sliced, WhatTheDeviceDoesNotLaunchInGridSlicesRunsWholeFromThenOn) {
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
  // The fixture takes the record loop and the process down; grid slices end after that, or never.
}

TEST_F(Sliced, ARingGoesWhenItsLaunchIsIssued) {
  device().hold = true;
  launch(12);
  wait_for(2);
  std::atomic<bool> gone{false};
  record_loop_->drop_ring(0, [&] { gone = true; });
  settle();
  EXPECT_FALSE(gone);
  device().end_all();
  TestRing::wait([&] { return gone.load(); });
  EXPECT_EQ(device().seen().size(), 4u);
}

TEST_F(Sliced, ManyRecordsWaitWithoutKeepingAProcessorBusy) {
  device().hold = true;
  launch(12);
  wait_for(2);
  for (int i = 0; i < 1500; ++i) launch(1);  // more than may wait
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen().size(), 4u + 1500);
}

// With a device that has streams beside the program's.
class Beside : public Sliced {
 protected:
  explicit Beside(SlicingSettings settings = forced(3), const Clock* clock = &Clock::system())
      : Sliced(settings, clock) {
    device().has_sides = true;
    device().hold = true;
  }
};

TEST_F(Beside, GridSlicesTakeTurnsOnTwoStreamsThatAreJoined) {
  launch(9);
  wait_for(3);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "fork 1", "3+3 on 1"}));
  device().end_grid_slice();
  wait_for(5);
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{make_event(), 0, 0, 0});
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "fork 1", "3+3 on 1", "6+3", "join", "record"}));
}

TEST_F(Beside, TheNextGridSliceComesWhereOneHasEnded) {
  launch(12);
  wait_for(3);
  device().end_grid_slice(1);
  wait_for(4);
  EXPECT_EQ(device().seen().back(), "6+3 on 1");
  device().end_all();
  wait_for(6);
  EXPECT_EQ(device().seen().back(), "join");
}

TEST_F(Beside, StreamsAreKeptForTheNextLaunch) {
  device().end_all();
  for (int i = 0; i < 5; ++i) launch(9);
  const uint64_t other = make_stream();
  launch(9, other);
  EXPECT_EQ(synchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(device().sides, 2);
  EXPECT_EQ(device().seen().size(), 6 * 5u);
}

TEST_F(Beside, OneGridSliceIsNotForked) {
  launch(3);
  wait_for(1);
  EXPECT_EQ(device().seen(), (Seen{"0+3"}));
}

TEST_F(Beside, BlocksThatMayWaitForLowerOnesStayInOrder) {
  function_ = load(with("membar.gl;\n  atom.global.add.u32 %r3, [%rd3], 1;"));
  launch(6);
  wait_for(1);
  EXPECT_EQ(device().seen(), (Seen{"0+3"}));  // it is yet to be seen that none waits for a later one
  device().end_grid_slice();
  wait_for(2);
  device().end_grid_slice();
  launch(9);
  wait_for(4);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "0+3", "3+3"}));
}

TEST_F(Beside, BehindBlocksThatMayWaitForAnyNothingIsQueued) {
  function_ = load(with("ld.volatile.global.u32 %r3, [%rd3];"));
  launch(9);
  wait_for(1);
  EXPECT_EQ(device().seen(), (Seen{"0+3"}));
  device().end_grid_slice();
  wait_for(2);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
}

struct HasClock {
  TestClock clock_;
};

class Stalled : protected HasClock, public Beside {
 protected:
  static constexpr std::chrono::milliseconds kTimeout{20};

  Stalled() : Beside(soon(), &clock_) {}
  static SlicingSettings soon() {
    SlicingSettings settings = forced(3);
    settings.timeout_ns = std::chrono::nanoseconds(kTimeout).count();
    return settings;
  }
};

TEST_F(Stalled, WhatIsLeftOfALaunchThatDoesNotEndComesBesideIt) {
  launch(30);
  wait_for(3);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "fork 1", "3+3 on 1"}));
  clock_.pass(kTimeout);
  wait_for(7);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "fork 1", "3+3 on 1", "fork 2", "6+24 on 2", "join", "join"}));
  EXPECT_STREQ(counters().refused[0].text, "its blocks wait for one another");
  EXPECT_EQ(gate().begun, 3u);
  device().end_all();
  launch(30);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen().back(), "whole 30");
}

TEST_F(Stalled, OneThatHasNotBegunIsNotTakenForStuck) {
  device().begun = false;
  launch(30);
  wait_for(3);
  for (int timeouts = 1; timeouts <= 3; ++timeouts) {
    clock_.pass(kTimeout);
    TestRing::wait([&] { return device().queries >= timeouts; });
  }
  EXPECT_EQ(device().seen().size(), 3u);
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(counters().refused[0].kernels, 0u);
}

TEST_F(Stalled, GridSlicesThatEndGiveItTime) {
  launch(30);
  wait_for(3);
  for (size_t ended = 1; ended <= 6; ++ended) {
    clock_.pass(kTimeout * 2 / 3);
    device().end_grid_slice();
    TestRing::wait([&] { return device().seen().size() == 3 + ended; });  // the next one has come
  }
  EXPECT_EQ(counters().refused[0].kernels, 0u);
  TestRing::wait([&] {
    clock_.pass(kTimeout / 20);  // and now none ends
    return counters().refused[0].kernels == 1;
  });
  device().end_all();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

// The same as persistent blocks, three of them, that each time are told to stop after five blocks.
class Persistent : public Sliced {
 protected:
  Persistent() : Sliced(forced(3, VariantChoice::kPersistent)) {}
};

TEST_F(Persistent, GoesOnWhereItStoppedAndWhatFollowsComesAfterIt) {
  launch(12);
  ring_.send(Opcode::kEventRecord, wire::EventRecordArgs{make_event(), 0, 0, 0});
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  const Seen expected = {
      "3 persistent from 0", "copy", "3 persistent from 5", "copy", "3 persistent from 10", "copy", "record"};
  EXPECT_EQ(device().seen(), expected);
  EXPECT_EQ(device().told, 3);
  EXPECT_EQ(counters().launches, 1u);
  EXPECT_EQ(counters().grid_slices, 3u);
}

TEST_F(Persistent, AClosedGateIsAskedAgain) {
  gate().open = 0;
  launch(7);
  for (uint32_t number = 1; number <= 2; ++number) {
    TestRing::wait([&] { return gate().asked == number; });
    EXPECT_EQ(device().seen().size(), 2 * (number - 1));
    grant(number);
    wait_for(2 * number);
  }
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

TEST_F(Persistent, NothingMoreIsIssuedOfAFailedProcess) {
  device_->hold_work(true);  // the counter's copy
  launch(30);
  wait_for(2);
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  device_->finish();
  EXPECT_EQ(synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(device().seen().size(), 2u);
}

class StalledPersistent : public Beside {
 protected:
  StalledPersistent() : Beside(soon()) {}
  static SlicingSettings soon() {
    SlicingSettings settings = forced(3, VariantChoice::kPersistent);
    settings.timeout_ns = 20'000'000;
    return settings;
  }
};

TEST_F(StalledPersistent, MoreBlocksClaimWhatIsLeft) {
  device_->hold_work(true);  // the counter's copy: they do not end
  launch(30);
  wait_for(6);
  // Twice it is looked whether they claim.
  EXPECT_EQ(device().seen(), (Seen{"3 persistent from 0", "copy", "copy", "copy", "fork 1", "30 persistent from 5"}));
  EXPECT_EQ(device().told, 1);
  let_end();
  EXPECT_EQ(device().seen().back(), "join");
  EXPECT_EQ(device().told, 1);
  launch(30);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen().back(), "whole 30");
}

TEST(SlicingSettings, AreReadWordByWord) {
  SlicingSettings settings;
  EXPECT_TRUE(
      read_slicing_settings("enabled=1 threshold_us=70 in_flight=3 force_blocks=5 variant=persistent", &settings).ok());
  EXPECT_TRUE(settings.enabled && settings.variant == VariantChoice::kPersistent);
  EXPECT_EQ(settings.threshold_ns, 70'000u);
  EXPECT_EQ(settings.in_flight, 3u);
  EXPECT_FALSE(settings.drop_ns);
  EXPECT_FALSE(settings.resize);
  ASSERT_TRUE(read_slicing_settings("resize=1", &settings).ok());
  EXPECT_TRUE(settings.resize);
  EXPECT_FALSE(settings.await_copies || settings.take_ns);
  EXPECT_FALSE(settings.drop_strict);
  ASSERT_TRUE(read_slicing_settings("take_us=15 drop_strict=1", &settings).ok());
  EXPECT_TRUE(settings.drop_strict);
  EXPECT_EQ(settings.take_ns, 15'000u);
  ASSERT_TRUE(read_slicing_settings("await_copies=1", &settings).ok());
  EXPECT_TRUE(settings.await_copies);
  ASSERT_TRUE(read_slicing_settings("drop_us=70", &settings).ok());
  EXPECT_EQ(settings.drop_ns, 70'000u);
  EXPECT_EQ(settings.force_blocks, 5u);
  EXPECT_TRUE(read_slicing_settings("variant=sliced", &settings).ok());
  EXPECT_EQ(settings.variant, VariantChoice::kSliced);
  EXPECT_TRUE(read_slicing_settings("form=persistent", &settings).ok());  // of earlier versions, as the next
  EXPECT_EQ(settings.variant, VariantChoice::kPersistent);
  EXPECT_TRUE(read_slicing_settings("form=slice", &settings).ok());
  EXPECT_EQ(settings.variant, VariantChoice::kSliced);
  EXPECT_TRUE(read_slicing_settings("", &settings).ok());
  for (const char* wrong :
       {"enabled", "enabled=2", "in_flight=0", "threshold_us=x", "variant=other", "colour=1", "=", "in_flight=3x"}) {
    EXPECT_FALSE(read_slicing_settings(wrong, &settings).ok()) << wrong;
  }
}

TEST(LaunchShapeTest, ABlockTakesItsWavesPartOfTheLaunch) {
  Launch launch;
  LaunchShape shape(launch, 1320, 132, 132);
  EXPECT_EQ(shape.block_ns(), 0u) << "not measured yet";
  shape.learn_whole(10'000'000);
  EXPECT_EQ(shape.block_ns(), 1'000'000u);
  LaunchShape last(launch, 133, 132, 132);
  last.learn_whole(10'000'000);
  EXPECT_EQ(last.block_ns(), 5'000'000u);
}

TEST(GridSliceSize, BeginsWholeAndIsCutOnceItIsMeasured) {
  GridSliceSize size(20'000, 528, 132);
  EXPECT_EQ(size.blocks(), 20'000u);
  size.learn_whole(28'000'000);
  EXPECT_LT(size.blocks(), 20'000u);
  EXPECT_FALSE(size.hopeless());
}

TEST(GridSliceSize, ARewrittenVariantThatIsSlowerIsGivenUp) {
  GridSliceSize size(20'000, 528, 132);
  size.learn_whole(28'000'000);
  int wholes = 0;
  for (int i = 0; i < 200 && !size.hopeless(); ++i) {
    size.wants_whole() ? ++wholes, size.learn_whole(28'000'000) : size.learn_sliced(size.blocks(), 31'000'000);
  }
  EXPECT_TRUE(size.hopeless());
  EXPECT_EQ(wholes, 3);
}

TEST(GridSliceSize, ANeighbourThatSlowsBothIsNoReason) {
  GridSliceSize size(20'000, 528, 132);
  size.learn_whole(28'000'000);
  for (int i = 0; i < 200; ++i) {
    size.wants_whole() ? size.learn_whole(31'000'000) : size.learn_sliced(size.blocks(), 31'000'000);
  }
  EXPECT_FALSE(size.hopeless());
  EXPECT_LT(size.blocks(), 20'000u);
}

TEST(GridSliceSize, OneThatIsAsFastIsKept) {
  GridSliceSize size(20'000, 528, 132);
  size.learn_whole(28'000'000);
  for (int i = 0; i < 100; ++i) size.learn_sliced(size.blocks(), 28'000'000 + 3'000 * (20'000 / size.blocks()));
  EXPECT_FALSE(size.hopeless());
}

}  // namespace
}  // namespace bandsaw::runner
