// Launches under way as they are described, and cut as they are granted.
#include "memory/base/clock.h"
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

class Described : public Sliced {
 protected:
  explicit Described(VariantChoice variant = VariantChoice::kSliced) : Sliced(forced(3, variant)) {
    grant_page_->planned = 1;
    gate().open = 0;
  }
  ~Described() override { grant_page_->planned = 0; }

  // Grants what is asked for next, and says what was described for it; `call` 0: nothing.
  KernelDescriptor grant(uint64_t blocks, uint32_t resident = 0) {
    const uint32_t number = ++grants_;
    TestRing::wait([&] { return gate().asked == number; });
    KernelDescriptor descriptor;
    // It may be written again just now.
    TestRing::wait([&] { return read_descriptor(grant_page_->kernel_descriptors[kGateSlot], &descriptor); });
    if (descriptor.asked != number) descriptor = {};
    gate().blocks = blocks;
    if (descriptor.call != 0) gate().resident = resident;
    gate().granted = number;
    futex_wake(&gate().granted);
    return descriptor;
  }

  uint32_t grants_ = 0;
};

TEST_F(Described, GridSlicesAreAsLargeAsGranted) {
  launch(20);
  const KernelDescriptor before = grant(0);  // the launch itself: what it is, is known after it has passed
  EXPECT_EQ(before.call, 0u);
  EXPECT_EQ(before.brief, 0u);
  wait_for(1);
  const KernelDescriptor descriptor = grant(5);
  EXPECT_EQ(descriptor.call, 1u);
  EXPECT_EQ(descriptor.blocks, 20u);
  EXPECT_EQ(descriptor.left, 17u);
  EXPECT_EQ(descriptor.minimum, 3u);
  EXPECT_EQ(descriptor.threads, 32u);
  EXPECT_EQ(descriptor.variant, static_cast<uint32_t>(KernelVariant::kSliced));
  EXPECT_GT(descriptor.memory, 0u);
  EXPECT_LT(descriptor.memory, kDescriptorParts / 2);
  EXPECT_STREQ(descriptor.kernel, "fill");
  EXPECT_NE(descriptor.shape, 0u);
  wait_for(2);
  EXPECT_EQ(grant(0).left, 12u);  // granted, and nothing said of its size
  wait_for(3);
  EXPECT_EQ(grant(~uint64_t{0}).left, 9u);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+5", "8+3", "11+9"}));
  TestRing::wait([&] {
    KernelDescriptor none;
    return read_descriptor(grant_page_->kernel_descriptors[kGateSlot], &none) && none.call == 0;
  });
}

TEST_F(Described, OnceItIsKnownToRunSoTheFirstGridSliceIsPlannedToo) {
  gate().open = 1;
  launch(6);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  process_->gate().pause();
  gate().open = 0;
  launch(6);
  const KernelDescriptor descriptor = grant(4);
  EXPECT_EQ(descriptor.call, 1u);
  EXPECT_EQ(descriptor.left, 6u);
  EXPECT_EQ(grant(4).left, 2u);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "0+4", "4+2"}));
  EXPECT_EQ(gate().asked, 2u);  // once for each grid slice, and not for the launch
  TestRing::wait([&] { return gate().ended == gate().begun; });
}

TEST_F(Described, WhatRunsWholeSaysWhatItNeeds) {
  launch(12, 0, VGPU_LAUNCH_COOPERATIVE);
  const KernelDescriptor descriptor = grant(0);
  EXPECT_EQ(descriptor.call, 0u);
  EXPECT_EQ(descriptor.brief, 1u);
  EXPECT_EQ(descriptor.blocks, 12u);
  EXPECT_EQ(descriptor.threads, 32u);
  EXPECT_STREQ(descriptor.kernel, "fill");
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  launch(13, 0, VGPU_LAUNCH_COOPERATIVE);
  const KernelDescriptor other = grant(0);
  EXPECT_EQ(other.brief, 1u);
  EXPECT_NE(other.shape, descriptor.shape);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

TEST_F(Described, TheSameKernelHasTheSameShape) {
  std::set<uint64_t> shapes;
  for (const uint32_t blocks : {4u, 8u}) {
    launch(blocks);
    grant(0);
    shapes.insert(grant(blocks).shape);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  }
  EXPECT_EQ(shapes.size(), 1u);
}

TEST_F(Described, WithoutAPlanNothingIsDescribed) {
  grant_page_->planned = 0;
  gate().blocks = 5;
  launch(6);
  EXPECT_EQ(grant(5).call, 0u);
  EXPECT_EQ(grant(5).call, 0u);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3"}));
}

TEST_F(Described, AFailedProcessGivesBackWhatItAskedFor) {
  launch(20);
  grant(0);
  TestRing::wait([&] { return gate().asked == 2; });
  process_->poisoned(CUDA_ERROR_ILLEGAL_ADDRESS);
  grant(5);
  TestRing::wait([&] { return gate().ended == gate().begun; });
  EXPECT_EQ(device().seen(), (Seen{"0+3"}));
}

class DescribedPersistent : public Described {
 protected:
  DescribedPersistent() : Described(VariantChoice::kPersistent) {}
};

TEST_F(DescribedPersistent, HasSoManyBlocksAsGranted) {
  launch(12);
  grant(0);
  wait_for(2);  // five blocks, then it was told to stop
  const KernelDescriptor descriptor = grant(0, 2);
  EXPECT_EQ(descriptor.variant, static_cast<uint32_t>(KernelVariant::kPersistent));
  EXPECT_EQ(descriptor.left, 7u);
  wait_for(4);
  EXPECT_EQ(grant(0, 1).left, 2u);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(),
            (Seen{"3 persistent from 0", "copy", "2 persistent from 5", "copy", "1 persistent from 10", "copy"}));
}

TEST_F(DescribedPersistent, IsToldToStopWhereOtherResidencyIsPlanned) {
  device().claims = 0;
  gate().no_waiters = 1;
  launch(12);
  for (int launches = 1; launches <= 4; ++launches) {
    device_->hold_work(true);  // the counter's copy: it runs
    grant(0, 2);
    TestRing::wait([&] { return device().told == std::min(launches, 3); });  // as tests do to the first three
    wait_for(static_cast<size_t>(2 * launches));
    if (launches < 4) device_->finish();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(device().told, 3);
  gate().resident = kNoResident;
  TestRing::wait([&] { return device().told == 4; });
  device().claims = 12;
  device_->finish();
  grant(0, 1);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

TEST_F(DescribedPersistent, TellsHowFarItIsBesideAnother) {
  device().claims = 2;
  device().probes_pass = true;
  gate().no_waiters = 1;
  launch(100);
  for (int launches = 1; launches <= 4; ++launches) {
    device_->hold_work(true);  // the counter's copy: it runs
    grant(0, 2);
    wait_for(static_cast<size_t>(2 * launches));
    if (launches < 4) device_->finish();
  }
  KernelDescriptor descriptor;
  TestRing::wait([&] {
    return read_descriptor(grant_page_->kernel_descriptors[kGateSlot], &descriptor) && descriptor.seen_ns > 0;
  });
  EXPECT_EQ(descriptor.call, 1u);
  EXPECT_EQ(descriptor.left, 92u);
  EXPECT_EQ(descriptor.resident, 2u);
  EXPECT_EQ(descriptor.asked, gate().asked);  // no descriptor for the next ask
  EXPECT_LE(descriptor.seen_ns, monotonic_ns());
  const int64_t first = descriptor.seen_ns;
  TestRing::wait([&] {
    return read_descriptor(grant_page_->kernel_descriptors[kGateSlot], &descriptor) && descriptor.seen_ns > first;
  });
  device().claims = 100;
  device_->finish();
  grant(0, 1);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

class DescribedAsPlanned : public Described {
 protected:
  DescribedAsPlanned() : Described(VariantChoice::kAuto) {}
};

TEST_F(DescribedAsPlanned, BlocksStayWhereIsPlannedHowManyLieThere) {
  launch(12);
  grant(0);
  wait_for(2);
  EXPECT_EQ(grant(0, 2).variant, static_cast<uint32_t>(KernelVariant::kPersistent));
  wait_for(4);
  grant(0, 2);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  grant_page_->planned = 0;
  launch(6);
  for (int slices = 0; slices < 2; ++slices) EXPECT_EQ(grant(0).call, 0u);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"3 persistent from 0", "copy", "2 persistent from 5", "copy", "2 persistent from 10",
                                   "copy", "0+3", "3+3"}));
}

TEST_F(DescribedAsPlanned, GridSlicesTurnToBlocksThatStayWhereOthersArePlannedBesideThem) {
  grant_page_->planned = 0;
  device().hold = true;
  launch(22);
  grant(0);
  wait_for(1);
  TestRing::wait([&] { return gate().asked == 2; });
  grant_page_->planned = 1;
  grant(0);  // of one that is planned alone
  wait_for(2);
  device().end_grid_slice();
  EXPECT_EQ(grant(4, 2).variant, static_cast<uint32_t>(KernelVariant::kSliced));
  wait_for(3);
  device().end_grid_slice();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(gate().asked, 3u);  // a grid slice is in flight
  device().end_all();
  const KernelDescriptor descriptor = grant(0, 2);
  EXPECT_EQ(descriptor.variant, static_cast<uint32_t>(KernelVariant::kPersistent));
  EXPECT_EQ(descriptor.call, 1u);
  EXPECT_EQ(descriptor.left, 12u);
  for (int i = 0; i < 2; ++i) grant(0, 1);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(device().seen(), (Seen{"0+3", "3+3", "6+4", "2 persistent from 10", "copy", "1 persistent from 15", "copy",
                                   "1 persistent from 20", "copy"}));
}

}  // namespace
}  // namespace bandsaw::runner
