// Persistent blocks that leave single SMs while they run.
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

// Where they run for long, tests take an SM from them and give it back. Six blocks, two on each SM.
class Taken : public Sliced {
 protected:
  static SlicingSettings settings() {
    SlicingSettings made = forced(6, VariantChoice::kPersistent);
    made.take_ns = 15'000;
    return made;
  }
  explicit Taken(const SlicingSettings& with = settings()) : Sliced(with) {
    device().told_apart = device().has_sides = device().hold = device().probes_pass = true;
  }
  std::vector<std::vector<uint32_t>> stops() {
    std::lock_guard lock(device().mutex);
    return device().stops;
  }
};

TEST_F(Taken, AnSmIsLeftAndWhatWasOnItComesBack) {
  device_->hold_work(true);  // the counters' copies: no launch ends
  launch(60);
  TestRing::wait([&] { return device().told == 1; });
  EXPECT_EQ(device().seen(), (Seen{"6 persistent at 0 from 0", "copy", "fork 1", "2 persistent at 6 from 5", "copy"}));
  // First one SM; once its blocks had come back with places of their own, one again: whose are told already stays out.
  ASSERT_EQ(stops().size(), 2u);
  EXPECT_EQ(stops()[0], (std::vector<uint32_t>{1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(stops()[1], (std::vector<uint32_t>{1, 1, 1, 1, 0, 0, 0, 0}));
  // These cannot come back beside others that run: all stop, and are launched again.
  device().claims = 50;
  let_end();
  EXPECT_EQ(device().seen().at(5), "6 persistent at 0 from 10");
  EXPECT_EQ(counters().launches, 1u);
}

// Where blocks are has been asked, and the launch ends before the answer is used: the next one is issued all the same.
TEST_F(Taken, ALaunchThatEndsWhileItIsAskedGoesOn) {
  device().probes_pass = false;  // the question is held with all other work
  device_->hold_work(true);
  launch(60);
  TestRing::wait([&] { return device().seen().size() == 3; });
  EXPECT_EQ(device().seen(), (Seen{"6 persistent at 0 from 0", "copy", "copy"}));
  device().claims = 55;
  let_end();
  // Where the answer came in time after all, it is asked again before.
  const Seen seen = device().seen();
  EXPECT_EQ(std::count(seen.begin() + 3, seen.end(), "6 persistent at 0 from 5"), 1) << testing::PrintToString(seen);
}

TEST_F(Taken, NoneIsLeftBeforeTheLaunchHasBegun) {
  device().begun = false;
  device_->hold_work(true);
  launch(60);
  TestRing::wait([&] { return device().queries >= 3; });
  EXPECT_TRUE(stops().empty());
  device().claims = 60;
  let_end();
}

// As above, where the arbiter plans: it says how many.
class TakenByPlan : public Taken {
 protected:
  TakenByPlan() {
    device().hold = false;
    device().claims = 6;
    launch(6);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
    device().hold = true;
    gate().no_waiters = 1;
    plan();
  }
  ~TakenByPlan() override { grant_page_->planned = 0; }
};

TEST_F(TakenByPlan, TheRunnerSaysThatItCan) {
  device_->hold_work(true);
  launch(60);
  TestRing::wait([&] { return gate().asked == 1; });
  KernelDescriptor descriptor;
  TestRing::wait([&] { return read_descriptor(grant_page_->kernel_descriptors[kGateSlot], &descriptor); });
  EXPECT_EQ(descriptor.leaves_sms, 1u);
  gate().resident = 6;
  grant(1);
  TestRing::wait([&] { return device().told == 1; });
  device().claims = 60;
  device_->hold_work(false);
  device_->finish();
  grant(2);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
