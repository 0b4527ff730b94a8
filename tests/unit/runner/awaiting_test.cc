// Launches behind copies on their stream, where kernels are planned.
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

class Awaiting : public Sliced {
 protected:
  static SlicingSettings settings(bool await) {
    SlicingSettings made = forced(3);
    made.await_copies = await;
    return made;
  }
  explicit Awaiting(bool await = true) : Sliced(settings(await)) {
    EXPECT_TRUE(add_region(99, kHost, 8 << 20, kPage).ok());
    // Once the kernel is known to run in grid slices, each of them is planned.
    launch(3);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
    plan();
  }
  ~Awaiting() override { grant_page_->planned = 0; }

  void copy(uint64_t stream = 0) {
    const auto in = linear_copy(device_base(), VGPU_MEMORY_DEVICE, kHost, VGPU_MEMORY_HOST, 64);
    ring_.send(Opcode::kCopy, wire::CopyArgs{in, stream, {2, 7}});
  }
  bool asks() {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return gate().asked != 0;
  }
  void runs() {
    asked_and_granted(1);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  }
  // It asks while other work is held, which ends then.
  void runs_beside_held_work(uint32_t asks) {
    asked_and_granted(asks);
    device_->finish();
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  }
  void asked_and_granted(uint32_t asks) {
    TestRing::wait([&] { return gate().asked == asks; });
    grant(asks);
  }

  static constexpr uint64_t kHost = 0x50000000;
};

TEST_F(Awaiting, AsksOnceTheCopiesHaveEnded) {
  device_->hold_work(true);
  copy();
  launch(3);
  EXPECT_FALSE(asks());
  device_->finish();
  runs();
  EXPECT_EQ(device().seen(), (Seen{"0+3", "copy", "0+3"}));
}

TEST_F(Awaiting, CopiesOfOtherStreamsAreNotWaitedFor) {
  const uint64_t copies = make_stream(), kernels = make_stream();
  device_->hold_work(true);
  copy(copies);
  launch(3, kernels);
  runs_beside_held_work(1);
}

TEST_F(Awaiting, OnlyTheNextLaunchWaits) {
  device_->hold_work(true);
  copy();
  launch(3);
  EXPECT_FALSE(asks());
  device_->finish();
  runs();
  device_->hold_work(true);
  launch(3);
  runs_beside_held_work(2);
}

TEST_F(Awaiting, WithoutPlansNothingWaits) {
  grant_page_->planned = 0;
  device_->hold_work(true);
  copy();
  launch(3);
  runs_beside_held_work(1);
}

class NotAwaiting : public Awaiting {
 protected:
  NotAwaiting() : Awaiting(false) {}
};

TEST_F(NotAwaiting, ItAsksAtOnce) {
  device_->hold_work(true);
  copy();
  launch(3);
  runs_beside_held_work(1);
}

}  // namespace
}  // namespace bandsaw::runner
