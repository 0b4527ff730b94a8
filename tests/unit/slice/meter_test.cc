#include "vgpu-sched/slice/meter.h"

#include <gtest/gtest.h>

namespace bandsaw::slice {
namespace {

class MeterTest : public testing::Test {
 protected:
  static constexpr int kResident = 4;

  MeterTest() { meter_.start(a_, b_); }
  // Of a kernel that takes 100 ns for a block alone: what is claimed in so long at that speed.
  static Blocks blocks(Time time, double speed) { return static_cast<Blocks>(static_cast<double>(time) / 100 * speed); }
  PairForecast known() { return model_.pair(a_.shape, kResident, b_.shape, kResident); }

  CoRunModel model_{GpuModel{}};
  SpeedMeter meter_{model_};
  const ShapeId first_ = model_.add({.needs = {.threads = 256, .registers = 32}, .block_ns = 100});
  const ShapeId second_ = model_.add({.needs = {.threads = 256, .registers = 32}, .block_ns = 100, .memory = 0.5});
  const SpeedMeter::Side a_{.kernel = 1, .shape = first_, .resident = kResident};
  const SpeedMeter::Side b_{.kernel = 2, .shape = second_, .resident = kResident};
};

TEST_F(MeterTest, WhatIsClaimedWhileBothRunIsTheirSpeed) {
  EXPECT_FALSE(known().measured);
  bool told = false;
  for (Time now = kMillisecond; now <= 9 * kMillisecond; now += 2 * kMillisecond) {
    told = meter_.claimed(1, blocks(now, 0.7), kResident, now) || told;
    // Its launch comes later, and by another clock; until then the first was alone, and faster.
    if (now > 2 * kMillisecond) told = meter_.claimed(2, blocks(now, 0.2), kResident, 77 * kSecond + now) || told;
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(meter_.observed(), 1u);
  EXPECT_TRUE(known().measured);
  EXPECT_NEAR(known().speed_a, 0.7, 0.01);
  EXPECT_NEAR(known().speed_b, 0.2, 0.01);
  EXPECT_NEAR(meter_.throughput(), 0.9, 0.02);
}

TEST_F(MeterTest, WhoHasAnotherResidencyIsNotMeasured) {
  for (Time now = kMillisecond; now <= 20 * kMillisecond; now += kMillisecond) {
    EXPECT_FALSE(meter_.claimed(1, blocks(now, 0.7), kResident, now));
    EXPECT_FALSE(meter_.claimed(2, blocks(now, 0.2), kResident + 1, now));
  }
  EXPECT_EQ(meter_.observed(), 0u);
}

TEST_F(MeterTest, WhatGoesBackwardsBeginsAnew) {
  for (Time now = kMillisecond; now <= 20 * kMillisecond; now += kMillisecond) {
    (void)meter_.claimed(1, blocks(now, 0.7), kResident, now);
    const Time time = now / kMillisecond % 2 == 0 ? now : kSecond - now;
    EXPECT_FALSE(meter_.claimed(2, blocks(time, 0.2), kResident, time));
  }
  EXPECT_FALSE(meter_.claimed(3, 1, kResident, kSecond));  // takes no part
  meter_.stop();
  EXPECT_FALSE(meter_.claimed(1, 1, kResident, kSecond));
  EXPECT_EQ(meter_.throughput(), 0);
}

TEST_F(MeterTest, WhatCannotBeIsNotBelieved) {
  for (Time now = kMillisecond; now <= 20 * kMillisecond; now += kMillisecond) {
    EXPECT_FALSE(meter_.claimed(1, blocks(now, 1.5), kResident, now));
    EXPECT_FALSE(meter_.claimed(2, blocks(now, 0.2), kResident, now));
  }
  EXPECT_FALSE(known().measured);
}

}  // namespace
}  // namespace bandsaw::slice
