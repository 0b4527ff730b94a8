// The gate of one process: slices as it cuts them, and what it tells and asks the arbiter, who is this test.
#include "backend/runner/gate.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <deque>
#include <thread>

#include "memory/base/futex.h"
#include "tests/unit/runner/fake_device.h"

namespace bandsaw::runner {
namespace {

constexpr uint32_t kSlot = 70;
constexpr uint64_t kMicrosecond = 1000, kUnit = 100 * kMicrosecond;

class SliceDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  void slice_begin(unsigned) override { ++begun; }
  void slice_end(unsigned, SliceDone done) override {
    std::lock_guard lock(mutex);
    ended.push_back(std::move(done));
  }
  // The oldest slice is over.
  void finish_slice(uint64_t busy_ns) {
    SliceDone done;
    {
      std::lock_guard lock(mutex);
      done = std::move(ended.front());
      ended.pop_front();
    }
    done(busy_ns);
  }
  std::atomic<int> begun{0};
  std::mutex mutex;
  std::deque<SliceDone> ended;
};

class GateTest : public testing::Test {
 protected:
  GateTest() {
    board_->depth = 2;
    board_->quantum_ns = 100 * kUnit;
    view_.set_device(&device_);
    view_.connect(board_.get(), kSlot, UniqueFd(dup(bell_.get())));
  }
  Gate& gate(unsigned engine = 0) { return board_->gates[kSlot][engine]; }
  bool rung() {
    uint64_t count = 0;
    if (read(bell_.get(), &count, sizeof count) < 0) return false;
    return board_->news[kSlot / 64].exchange(0) == uint64_t{1} << (kSlot % 64);
  }

  std::unique_ptr<GateBoard> board_ = std::make_unique<GateBoard>();
  UniqueFd bell_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  SliceDevice device_{0x7e0000000000, nullptr};
  GateView view_;
};

TEST_F(GateTest, NobodyIsAskedWhileThereIsNoArbiter) {
  board_->absent = 1;
  for (int i = 0; i < 100; ++i) view_.enter(0, 1);
  view_.pause();
  EXPECT_GT(device_.begun, 2);  // measured all the same
  while (!device_.ended.empty()) device_.finish_slice(kUnit);
  EXPECT_EQ(gate().begun + gate().ended + gate().asked, 0u);
  EXPECT_FALSE(rung());
}

TEST_F(GateTest, ShortWorkIsGatheredToAQuantumByAndBy) {
  gate().open = 1;
  std::vector<uint32_t> sizes;
  uint32_t units = 0;
  for (int i = 0; i < 300; ++i) {
    const int before = device_.begun;
    view_.enter(0, 1);
    if (device_.begun != before && before > 0) {
      sizes.push_back(std::exchange(units, 0));
      device_.finish_slice(sizes.back() * kUnit);
    }
    ++units;
  }
  ASSERT_GE(sizes.size(), 8u);
  EXPECT_EQ(sizes[0], 1u);
  for (size_t i = 1; i < sizes.size(); ++i) EXPECT_LE(sizes[i], std::min(100u, 2 * sizes[i - 1]));
  EXPECT_GE(sizes.back(), 64u);
  EXPECT_EQ(gate().busy_ns, gate().busy_ns / kUnit * kUnit);
  EXPECT_FALSE(rung());
}

TEST_F(GateTest, LongWorkStandsAlone) {
  gate().open = 1;
  view_.enter(0, 1);
  view_.pause();
  device_.finish_slice(1000 * kUnit);
  for (int i = 0; i < 2; ++i) view_.enter(0, 1);
  EXPECT_EQ(device_.begun, 3);
  view_.pause();
  EXPECT_EQ(gate().begun - gate().ended, 2u);
}

TEST_F(GateTest, AClosedGateIsWaitedForUntilItIsGranted) {
  std::thread asker([this] { view_.enter(2, 1); });
  while (gate(2).asked == 0) std::this_thread::yield();
  EXPECT_EQ(device_.begun, 0);
  while (!rung()) std::this_thread::yield();
  EXPECT_EQ(gate(2).begun, 0u);
  gate(2).granted = 1;
  futex_wake(&gate(2).granted);
  asker.join();
  EXPECT_EQ(device_.begun, 1);
  EXPECT_EQ(gate(2).begun, 1u);
  view_.pause();
  device_.finish_slice(kUnit);
  EXPECT_TRUE(rung());  // others may wait for its end
  EXPECT_EQ(gate(2).ended, 1u);
  EXPECT_EQ(gate(2).busy_ns, kUnit);
}

TEST_F(GateTest, TheEndOfTheArbiterLetsEverybodyGo) {
  std::thread asker([this] { view_.enter(0, 1); });
  while (gate().asked == 0) std::this_thread::yield();
  board_->absent = 1;
  futex_wake(&gate().granted);
  asker.join();
  view_.pause();
  EXPECT_EQ(device_.begun, 1);
}

TEST_F(GateTest, NoMoreThanTheDepthIsInFlight) {
  gate().open = 1;
  for (int i = 0; i < 2; ++i) {
    view_.enter(0, 1);
    view_.pause();
  }
  std::thread third([this] { view_.enter(0, 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(device_.begun, 2);
  device_.finish_slice(kUnit);
  third.join();
  EXPECT_EQ(device_.begun, 3);
}

}  // namespace
}  // namespace bandsaw::runner
