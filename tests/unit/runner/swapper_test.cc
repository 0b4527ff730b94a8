// When memory leaves the device because others want it, and what waits for it meanwhile, in virtual time.
#include "backend/runner/swap/swapper.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "tests/unit/runner/fake_device.h"
#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kReserved = 64 * kMiB;  // chunks of 4 MiB, of which the room of two is kept free
constexpr uint64_t kChunk = 4 * kMiB;

// Moves at once, as the book lets it.
class MovingDevice final : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  void settle(Done done) override {
    if (busy) return;
    done(CUDA_SUCCESS);
  }
  CUresult chunks_move(const swap::Moves& moves) override {
    for (const bool in : {false, true}) {
      for (const uint64_t address : in ? moves.in : moves.out) {
        if (!book->charge_move(kChunk, in)) return CUDA_ERROR_OUT_OF_MEMORY;
        if (while_moving) while_moving();
        moves.moved(address, in);
        in ? void(apart.erase(address)) : void(moves.apart && apart.insert(address).second);
      }
    }
    most = std::max(most, moves.out.size());
    left += moves.out.size();
    return CUDA_SUCCESS;
  }
  CUresult chunks_reach(const std::vector<uint64_t>& chunks) override {
    for (const uint64_t address : chunks) EXPECT_EQ(apart.erase(address), 1u);
    return CUDA_SUCCESS;
  }
  void chunks_prepare(uint64_t chunk_bytes, uint64_t bytes) override {
    EXPECT_EQ(chunk_bytes, kChunk);
    prepared = bytes;
  }
  swap::Book* book = nullptr;
  uint64_t prepared = 0;
  bool busy = false;
  size_t most = 0;  // that left in one go
  size_t left = 0;  // in all
  std::set<uint64_t> apart;
  std::function<void()> while_moving;  // before each
};

class SwapperTest : public testing::Test {
 protected:
  struct Runner {
    UsagePageView view;
    Swapper swapper;
    MovingDevice device;
    uint64_t next;
    uint64_t seq = 0;
    int asked = 0, told = 0;

    Runner(const TestClock* clock, uint64_t base) : swapper(&view, clock), device(base, nullptr), next(base) {
      swapper.set_device(&device);
      swapper.set_tell([this] { ++told; });
      device.book = &swapper.book();
    }
    // An allocation of one chunk, which lies where there is room.
    uint64_t add(bool* on_device = nullptr) {
      const bool there = swapper.book().charge(kChunk, true);
      EXPECT_TRUE(there || swapper.book().charge(kChunk, false));
      if (on_device) *on_device = there;
      next += kChunk;
      swapper.book().add(next, next, kChunk, there);
      return next;
    }
    // A launch that uses it.
    bool admit(uint64_t address, bool again = false) {
      if (!swapper.under_way() && !again) ++seq;
      wire::CallInfo info{};
      info.name = "launch";
      info.engine = Engine::kCompute;
      wire::CheckedRecord record{};
      record.opcode = wire::Opcode::kLaunch;
      record.info = &info;
      record.seq = seq;
      std::byte tail[sizeof address];
      std::memcpy(tail, &address, sizeof address);
      record.tail = tail;
      if (!swapper.admit(record)) return false;
      swapper.issued(record);
      return true;
    }
    int64_t on_device() { return view.slot().memory_bytes - view.slot().swapped_bytes; }
  };

  SwapperTest() {
    EXPECT_EQ(ftruncate(usage_.get(), sizeof(UsagePage)), 0);
    EXPECT_EQ(ftruncate(limits_fd_.get(), sizeof(LimitsPage)), 0);
    page_ =
        static_cast<UsagePage*>(mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, usage_.get(), 0));
    limits_ = static_cast<LimitsPage*>(
        mmap(nullptr, sizeof(LimitsPage), PROT_READ | PROT_WRITE, MAP_SHARED, limits_fd_.get(), 0));
    limits_->memory_share = 256 * kMiB;
    limits_->memory_swap = 256 * kMiB;
    may_hold(0);
    EXPECT_TRUE(a_.view.map(usage_, 0, limits_fd_).ok());
    EXPECT_TRUE(b_.view.map(usage_, 1, limits_fd_).ok());
    a_.swapper.book().set_ask([this] { asked_of(&b_); });
    b_.swapper.book().set_ask([this] { asked_of(&a_); });
    clock_.pass(std::chrono::seconds(10));
  }
  ~SwapperTest() override {
    munmap(page_, sizeof(UsagePage));
    munmap(limits_, sizeof(LimitsPage));
  }

  // As sessions say it.
  void may_hold(int64_t beyond, int64_t coming = 0) {
    limits_->memory_reserved = kReserved;
    limits_->memory_resident = kReserved + beyond;
    limits_->memory_coming = kReserved + std::max(beyond, coming);
  }
  void asked_of(Runner* runner) {
    ++asks_;
    run(runner, milliseconds(1));
  }
  // As the record loop does, for so long.
  void run(Runner* runner, milliseconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(1)) {
      for (int i = 0; i < 4; ++i) runner->swapper.advance(false);
      clock_.pass(milliseconds(1));
    }
  }

  UniqueFd usage_{memfd_create("usage page", MFD_CLOEXEC)}, limits_fd_{memfd_create("limits page", MFD_CLOEXEC)};
  UsagePage* page_ = nullptr;
  LimitsPage* limits_ = nullptr;
  TestClock clock_;
  Runner a_{&clock_, 0x7e0000000000}, b_{&clock_, 0x7e4000000000};
  int asks_ = 0;
};

TEST_F(SwapperTest, WhatIsLentLeavesWhileTheProgramRests) {
  for (int i = 0; i < 24; ++i) a_.add();
  EXPECT_GE(a_.on_device(), kReserved - 3 * static_cast<int64_t>(kChunk));
  may_hold(-kReserved / 2);
  run(&a_, milliseconds(10));
  EXPECT_LE(a_.on_device(), kReserved / 2);
  EXPECT_GT(a_.on_device(), kReserved / 4);
  EXPECT_FALSE(a_.swapper.under_way());
  may_hold(-kReserved);
  run(&a_, milliseconds(10));
  EXPECT_EQ(a_.on_device(), 0);
  EXPECT_LE(a_.device.most, 8u) << "others are to get it while there is more to go";
}

TEST_F(SwapperTest, TheDeviceMakesHostMemoryForWhatMayBeLent) {
  limits_->memory_swap = 192 * kMiB + static_cast<int64_t>(kSwapSlack);  // beyond the reservation; nobody else is there
  for (int i = 0; i < 24; ++i) a_.add();
  run(&a_, milliseconds(1));
  EXPECT_EQ(a_.device.prepared, 0u);
  limits_->memory_swap += kReserved / 2;
  run(&a_, milliseconds(1));
  EXPECT_EQ(a_.device.prepared, static_cast<uint64_t>(kReserved / 2));
}

TEST_F(SwapperTest, NothingLeavesBeforeWorkHasEnded) {
  for (int i = 0; i < 24; ++i) a_.add();
  const int64_t before = a_.on_device();
  a_.device.busy = true;
  may_hold(-kReserved / 2);
  run(&a_, milliseconds(100));
  EXPECT_EQ(a_.on_device(), before);
}

TEST_F(SwapperTest, WorkWaitsWhileMoreMemoryComes) {
  std::vector<uint64_t> chunks;
  for (int i = 0; i < 24; ++i) chunks.push_back(a_.add());
  may_hold(-kReserved / 2);
  run(&a_, milliseconds(10));
  const int64_t there = a_.on_device();
  may_hold(-kReserved / 2, 0);  // its reservation is on the way
  uint64_t away = 0;
  for (const uint64_t chunk : chunks) away = chunk;
  EXPECT_FALSE(a_.admit(away));
  run(&a_, milliseconds(5));
  EXPECT_EQ(a_.on_device(), there) << "nothing is moved out for it";
  EXPECT_TRUE(a_.swapper.under_way());
  may_hold(0);
  run(&a_, milliseconds(2));
  EXPECT_EQ(a_.on_device(), there + static_cast<int64_t>(kChunk));
  EXPECT_TRUE(a_.admit(away));
  EXPECT_GT(a_.told, 0) << "vgpud hears that it has work";
  EXPECT_GT(page_->short_at, 0);
}

// What follows is known, and would be brought in place of other chunks.
TEST_F(SwapperTest, WhileMoreMemoryComesNothingLeavesThatWouldComeBack) {
  std::vector<uint64_t> chunks;
  for (int i = 0; i < 24; ++i) chunks.push_back(a_.add());
  const auto go_round = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      for (bool again = false; !a_.admit(chunks[i], again); again = true) run(&a_, milliseconds(1));
      clock_.pass(milliseconds(1));
    }
  };
  for (int round = 0; round < 3; ++round) go_round(0, chunks.size());
  EXPECT_GT(a_.device.left, chunks.size());
  may_hold(-kReserved / 2);
  run(&a_, milliseconds(10));
  may_hold(-kReserved / 4, 8 * kChunk);
  const size_t left = a_.device.left;
  const int64_t there = a_.on_device();
  const auto is_away = [&](uint64_t chunk) {
    return a_.swapper.book().with_chunks([&](const swap::Chunks& all) { return !all.find(chunk)->on_device; });
  };
  const auto first = std::ranges::find_if(chunks, is_away) - chunks.begin();
  go_round(first, first + 1);
  EXPECT_EQ(a_.device.left, left);
  EXPECT_GT(a_.on_device(), there + static_cast<int64_t>(kChunk))
      << "where there is room, more comes than is waited for";
  may_hold(10 * kChunk);
  go_round(0, chunks.size());
  EXPECT_EQ(a_.device.left, left);
}

// Else what others lend it would go back to them while it moves.
TEST_F(SwapperTest, WhoWaitsForItsMemoryDoesNotRest) {
  std::vector<uint64_t> chunks;
  for (int i = 0; i < 24; ++i) chunks.push_back(a_.add());
  may_hold(10 * kChunk);
  a_.device.while_moving = [this] { clock_.pass(milliseconds(10)); };
  EXPECT_FALSE(a_.admit(chunks.back()));
  const auto before = clock_.now();
  run(&a_, milliseconds(1));
  EXPECT_GE(clock_.now() - before, milliseconds(10));
  EXPECT_LE(static_cast<int64_t>(nanoseconds(clock_.now())) - page_->worked_at, 2'000'000);
}

TEST_F(SwapperTest, WorkDoesNotWaitForWhatDoesNotCome) {
  std::vector<uint64_t> chunks;
  for (int i = 0; i < 24; ++i) chunks.push_back(a_.add());
  may_hold(-kReserved / 2);
  run(&a_, milliseconds(10));
  EXPECT_FALSE(a_.admit(chunks.back()));
  run(&a_, milliseconds(30));
  EXPECT_FALSE(a_.swapper.under_way());
  EXPECT_TRUE(a_.admit(chunks.back())) << "something of its own has gone for it";
}

TEST_F(SwapperTest, AProcessThatRestsMakesRoomForAnotherOne) {
  for (int i = 0; i < 20; ++i) a_.add();
  bool on_device = true;
  const uint64_t chunk = b_.add(&on_device);
  EXPECT_FALSE(on_device);
  EXPECT_FALSE(b_.admit(chunk));
  run(&b_, milliseconds(10));
  EXPECT_TRUE(b_.admit(chunk));
  EXPECT_EQ(b_.on_device(), static_cast<int64_t>(kChunk));
  EXPECT_GT(asks_, 0);
  EXPECT_EQ(page_->asks, 0u);
}

TEST_F(SwapperTest, WhatCanLieNowhereElseGetsItsRoom) {
  for (int i = 0; i < 20; ++i) a_.add();
  EXPECT_TRUE(b_.swapper.book().charge_fixed(kReserved / 2));
  EXPECT_EQ(b_.on_device(), kReserved / 2);
  EXPECT_LE(a_.on_device(), kReserved / 2);
  EXPECT_FALSE(b_.swapper.book().charge_fixed(kReserved)) << "it would not fit if all made room";
  EXPECT_FALSE(b_.swapper.book().charge_fixed(1024 * kMiB)) << "it is over the share";
  EXPECT_EQ(page_->asks, 0u);
}

}  // namespace
}  // namespace bandsaw::runner
