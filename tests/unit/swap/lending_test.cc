#include "memory/swap/lending.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace bandsaw::swap {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1'000 * kMs;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kBytesPerMs = 32 << 20;  // each way

// Virtual GPUs with a runner each, which brings what it uses while there is room, and gives up what it may not hold.
class Gpu {
 public:
  struct Vgpu {
    Lending::Terms terms;
    int64_t used = 0, on_device = 0, resident = 0, coming = 0;
    int64_t in_force = 0, worked_at = 0, short_at = 0;
    bool stuck = false;
    int64_t bytes_moved = 0;
  };

  void add(const std::string& name, int64_t reserved, int64_t used) {
    Vgpu& vgpu = vgpus_[name];
    vgpu.terms = {static_cast<uint64_t>(used + kGiB), static_cast<uint64_t>(reserved),
                  static_cast<uint64_t>(reserved) / 8 * 7};
    vgpu.used = used;
    vgpu.resident = reserved;
    vgpu.on_device = std::min(used, reserved);
    lending.set(name, vgpu.terms);
    lending.attach(name, 0);
  }
  Vgpu& operator[](const std::string& name) { return vgpus_.at(name); }
  void remove(const std::string& name) {
    vgpus_.erase(name);
    lending.remove(name);
    next_ = now;
  }

  // Those named work, all the time.
  void run(int64_t nanoseconds, const std::vector<std::string>& working) {
    for (const int64_t end = now + nanoseconds; now < end; now += kMs / 10) {
      for (const std::string& name : working) work(vgpus_.at(name));
      for (auto& [name, vgpu] : vgpus_) leave(vgpu);
      if (now >= next_) look();
      check();
    }
  }
  int64_t now = 10 * kSecond;
  Lending lending;

 private:
  void work(Vgpu& vgpu) {
    vgpu.worked_at = now;
    if (vgpu.on_device < vgpu.used) {
      if (vgpu.on_device >= vgpu.resident) vgpu.short_at = now;
      const int64_t comes = std::min({vgpu.used - vgpu.on_device, vgpu.resident - vgpu.on_device, kBytesPerMs / 10});
      vgpu.on_device += std::max<int64_t>(comes, 0);
      vgpu.bytes_moved += std::max<int64_t>(comes, 0);
    }
    if (vgpu.on_device < vgpu.used || vgpu.resident < static_cast<int64_t>(vgpu.terms.reserved)) next_ = now;
  }
  void leave(Vgpu& vgpu) {
    const int64_t goes = vgpu.stuck ? 0 : std::clamp<int64_t>(vgpu.on_device - vgpu.resident, 0, kBytesPerMs / 10);
    vgpu.on_device -= goes;
    vgpu.bytes_moved += goes;
  }
  void look() {
    for (auto& [name, vgpu] : vgpus_) {
      lending.see(name, {static_cast<uint64_t>(vgpu.used), static_cast<uint64_t>(vgpu.on_device), vgpu.in_force, false,
                         vgpu.worked_at, vgpu.short_at});
    }
    next_ = lending.review(now);
    for (const auto& [name, order] : lending.take_orders()) {
      Vgpu& vgpu = vgpus_.at(name);
      vgpu.in_force = order.beyond;
      vgpu.resident = static_cast<int64_t>(vgpu.terms.reserved) + order.beyond;
      vgpu.coming = static_cast<int64_t>(vgpu.terms.reserved) + order.coming;
    }
  }
  void check() {
    int64_t held = 0, reserved = 0;
    for (const auto& [name, vgpu] : vgpus_) {
      held += std::max(vgpu.on_device, vgpu.resident);
      reserved += static_cast<int64_t>(vgpu.terms.reserved);
    }
    ASSERT_LE(held, reserved + allowed) << "at " << now;
  }

  std::map<std::string, Vgpu> vgpus_;
  int64_t next_ = 0;

 public:
  int64_t allowed = 0;  // beyond what is reserved
};

TEST(Lending, WhoRestsLendsToWhoFindsNoRoomAndHasItBackAtOnce) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu.run(kSecond, {"a"});
  EXPECT_EQ(gpu["a"].on_device, 6 * kGiB);
  EXPECT_GE(gpu["b"].on_device, kGiB);
  const int64_t begin = gpu.now;
  while (gpu["b"].on_device < 4 * kGiB && gpu.now < begin + kSecond) gpu.run(kMs, {"b"});
  EXPECT_LT(gpu.now - begin, 150 * kMs);  // 2 GiB and more each way take 64 ms, both at once
  gpu.run(kSecond / 2, {"b"});
  EXPECT_EQ(gpu["b"].on_device, 6 * kGiB);
}

TEST(Lending, InTurnsOfASecondMostOfTheTurnHasAllMemory) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  for (int turn = 0; turn < 6; ++turn) {
    const std::string name = turn % 2 ? "b" : "a";
    gpu.run(200 * kMs, {name});
    EXPECT_EQ(gpu[name].on_device, 6 * kGiB) << turn;
    gpu.run(800 * kMs, {name});
  }
}

TEST(Lending, BothAtWorkHaveTheirReservationsAndNothingMoves) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu.run(2 * kSecond, {"a", "b"});
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(gpu[name].resident, 4 * kGiB);
    EXPECT_EQ(gpu[name].bytes_moved, 0);
  }
}

TEST(Lending, TurnsThatAreTooShortForTheMovesStopThem) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  for (int turn = 0; turn < 40; ++turn) gpu.run(60 * kMs, {turn % 2 ? "b" : "a"});
  const int64_t moved = gpu["a"].bytes_moved + gpu["b"].bytes_moved;
  for (int turn = 0; turn < 100; ++turn) gpu.run(60 * kMs, {turn % 2 ? "b" : "a"});
  EXPECT_LT(gpu["a"].bytes_moved + gpu["b"].bytes_moved - moved, 8 * kGiB);
  EXPECT_GE(gpu["a"].resident, 4 * kGiB);
  EXPECT_GE(gpu["b"].resident, 4 * kGiB);
}

TEST(Lending, WhatIsWithinTheReservationIsNotLent) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 3 * kGiB);
  gpu.run(2 * kSecond, {"a"});
  EXPECT_EQ(gpu["a"].resident, 4 * kGiB);
  EXPECT_EQ(gpu["b"].resident, 4 * kGiB);
}

TEST(Lending, NobodyWishesAndNothingMoves) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 3 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu.run(2 * kSecond, {"a"});
  EXPECT_EQ(gpu["b"].resident, 4 * kGiB);
  EXPECT_EQ(gpu["b"].bytes_moved, 0);
}

TEST(Lending, NoMoreThanTheHostHasRoomFor) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu["b"].terms.lendable = kGiB / 2;
  gpu.lending.set("b", gpu["b"].terms);
  gpu.run(2 * kSecond, {"a"});
  EXPECT_EQ(gpu["b"].resident, 4 * kGiB - kGiB / 2);
  gpu["b"].terms.lendable = 0;
  gpu.lending.set("b", gpu["b"].terms);
  gpu.run(kSecond, {"a"});
  EXPECT_EQ(gpu["b"].resident, 4 * kGiB);
}

TEST(Lending, TwoThatWishShareAndTheOneIdleForLongestLendsFirst) {
  Gpu gpu;
  for (const char* name : {"a", "b", "c", "d"}) gpu.add(name, 4 * kGiB, 6 * kGiB);
  gpu.run(100 * kMs, {"d"});
  gpu.run(kSecond, {"a"});
  EXPECT_LT(gpu["b"].resident + gpu["c"].resident, 6 * kGiB + kGiB / 4);
  EXPECT_GE(gpu["d"].resident, 4 * kGiB);
  gpu.run(kSecond, {"a", "b"});
  EXPECT_EQ(gpu["a"].on_device, 6 * kGiB);
  EXPECT_EQ(gpu["b"].on_device, 6 * kGiB);
}

TEST(Lending, WhoDoesNotGiveUpIsLeftAlone) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu["b"].stuck = true;
  gpu.run(3 * kSecond, {"a"});
  EXPECT_EQ(gpu["a"].resident, 4 * kGiB);
  EXPECT_EQ(gpu["a"].coming, 4 * kGiB);  // nobody waits for it
  EXPECT_EQ(gpu["b"].resident, 4 * kGiB);
}

TEST(Lending, WhatOneThatIsGoneHasLentIsADebtUntilItIsBack) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu.run(kSecond, {"a"});
  EXPECT_EQ(gpu.lending.debt(), 0u);
  gpu.remove("b");
  gpu.allowed = 3 * kGiB;
  EXPECT_GE(gpu.lending.debt(), static_cast<uint64_t>(2 * kGiB));
  gpu.run(200 * kMs, {"a"});
  EXPECT_EQ(gpu.lending.debt(), 0u);
  EXPECT_EQ(gpu["a"].on_device, 4 * kGiB);
}

TEST(Lending, AnOrderOfAnEarlierArbiterIsGoneOnWith) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu["b"].in_force = -2 * kGiB;
  gpu["b"].resident = gpu["b"].on_device = 2 * kGiB;
  gpu.lending.attach("b", -2 * kGiB);
  EXPECT_EQ(gpu.lending.beyond("b"), -2 * kGiB);
  gpu.run(200 * kMs, {"a", "b"});
  EXPECT_EQ(gpu["b"].on_device, 4 * kGiB);
}

TEST(Lending, WithoutASessionNothingIsLentOrBorrowed) {
  Gpu gpu;
  gpu.add("a", 4 * kGiB, 6 * kGiB);
  gpu.add("b", 4 * kGiB, 6 * kGiB);
  gpu.lending.detach("b");
  gpu.run(kSecond, {"a"});
  EXPECT_EQ(gpu["a"].resident, 4 * kGiB);
}

}  // namespace
}  // namespace bandsaw::swap
