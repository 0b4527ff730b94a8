// A gate, whose arbiter and device are the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <deque>

#include "backend/runner/execution/gate.h"
#include "tests/unit/runner/fake_device.h"
#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {

inline constexpr uint32_t kSlot = 70;
inline constexpr uint64_t kMicrosecond = 1000, kUnit = 100 * kMicrosecond;

class TimeSliceDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  void time_slice_begin(unsigned, bool on_turn) override {
    ++begun;
    turns += on_turn;
  }
  void time_slice_end(unsigned, TimeSliceDone done) override {
    std::lock_guard lock(mutex);
    ended.push_back(std::move(done));
  }
  // The oldest time slice is over.
  void finish_time_slice(uint64_t busy_ns) {
    TimeSliceDone done;
    {
      std::lock_guard lock(mutex);
      done = std::move(ended.front());
      ended.pop_front();
    }
    charged = done(busy_ns);
  }
  bool keep_engine(std::function<Keep()> asked, std::function<void()> ended_then) override {
    ++keeps;
    how = std::move(asked);
    let_go = std::move(ended_then);
    return can_keep;
  }
  bool keep_behind() override {
    ++behinds;
    return late;
  }
  bool time_slices_over(unsigned) override { return over; }
  std::atomic<int> begun{0}, turns{0};
  uint64_t charged = 0;  // of the last time slice that ended
  bool over = false;
  bool goes_on() const { return how() != Keep::kNot; }
  int keeps = 0;    // how often the engine was to be kept
  int behinds = 0;  // and what keeps it behind the work
  bool can_keep = true;
  bool late = false;  // what keeps it cannot come behind the work yet
  std::function<Keep()> how;
  std::function<void()> let_go;
  std::mutex mutex;
  std::deque<TimeSliceDone> ended;
};

class GateTest : public testing::Test {
 protected:
  GateTest() {
    grant_page_->depth = 2;
    grant_page_->quantum_ns = 100 * kUnit;
    view_.set_device(&device_);
    view_.connect(grant_page_.get(), kSlot, UniqueFd(dup(doorbell_.get())));
  }
  Gate& gate(unsigned engine = 0) { return grant_page_->gates[kSlot][engine]; }
  bool rung() {
    uint64_t count = 0;
    if (read(doorbell_.get(), &count, sizeof count) < 0) return false;
    return grant_page_->pending[kSlot / 64].exchange(0) == uint64_t{1} << (kSlot % 64);
  }

  std::unique_ptr<GrantPage> grant_page_ = std::make_unique<GrantPage>();
  UniqueFd doorbell_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  TimeSliceDevice device_{0x7e0000000000, nullptr};
  TestClock clock_;
  GateView view_{&clock_};
};

}  // namespace bandsaw::runner
