#include "vgpu-sched/slice/tuner.h"

#include <gtest/gtest.h>

#include <random>

namespace bandsaw::slice {
namespace {

constexpr Blocks kWave = 8 * 132;

// A kernel whose block takes `block` and whose slice `cost` beside; some measurements are up to ten times too long.
struct Kernel {
  Blocks blocks;
  double block;
  double cost;
  double noise;
  std::mt19937_64 random{7};

  Time run(Blocks slice) {
    std::normal_distribution<double> normal(1, noise);
    double time = (cost + block * static_cast<double>(slice)) * std::max(normal(random), 0.2);
    if (random() % 20 == 0) time *= 1 + static_cast<double>(random() % 10);
    return static_cast<Time>(time);
  }
  double overhead(Blocks slice) const { return cost / (block * static_cast<double>(slice)); }
};

TEST(MinimumSlice, KeepsTheOverheadWithinTheBound) {
  SliceCost cost{.whole = 28 * kMillisecond, .overhead = 3 * kMicrosecond, .blocks = 42240, .wave = kWave};
  const Blocks slice = minimum_slice(cost);
  EXPECT_EQ(slice, 264u);  // 187 cuts allowed: 226 blocks, in rows of 132
  EXPECT_EQ(minimum_slice(cost, 0.002) % kWave, 0u);
  cost.whole = 100 * kMicrosecond;
  EXPECT_EQ(minimum_slice(cost), cost.blocks);  // not worth a cut
  cost.whole = 0;
  EXPECT_EQ(minimum_slice(cost), cost.blocks);
}

TEST(MinimumSlice, NeverBreaksItsWord) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    const SliceCost cost{.whole = static_cast<Time>(random() % (100 * kMillisecond)),
                         .overhead = static_cast<Time>(random() % (50 * kMicrosecond)),
                         .blocks = random() % 1000000 + 1,
                         .wave = 132 * (random() % 32 + 1)};
    const Blocks slice = minimum_slice(cost);
    ASSERT_GE(slice, 1u);
    ASSERT_LE(slice, cost.blocks);
    if (slice == cost.blocks) continue;
    ASSERT_EQ(slice % 132, 0u);
    const Blocks slices = (cost.blocks + slice - 1) / slice;
    ASSERT_LE(static_cast<double>((slices - 1) * cost.overhead), kOverheadBound * static_cast<double>(cost.whole) + 1);
  }
}

TEST(SliceTuner, FindsTheLeastSliceThroughNoise) {
  for (const double noise : {0.0, 0.02, 0.05}) {
    Kernel kernel{.blocks = 400 * kWave, .block = 30, .cost = 4000, .noise = noise};
    SliceTuner tuner({.blocks = kernel.blocks, .wave = kWave});
    EXPECT_EQ(tuner.next(), kernel.blocks);
    double lost = 0;
    int count = 0;
    for (int i = 0; i < 20000; ++i) {
      const Blocks slice = tuner.next();
      tuner.observe(slice, kernel.run(slice));
      if (i < 1000) continue;
      lost += kernel.overhead(slice);
      ++count;
    }
    std::printf("noise %.0f %%: mean overhead %.2f %%, slice %.1f waves\n", 100 * noise, 100 * lost / count,
                static_cast<double>(tuner.next()) / kWave);
    EXPECT_LE(lost / count, 1.1 * kOverheadBound);
    EXPECT_GE(lost / count, 0.2 * kOverheadBound);
  }
}

TEST(SliceTuner, GrowsWhenSlicesCostMoreThanThePrior) {
  Kernel kernel{.blocks = 400 * kWave, .block = 30, .cost = 40000, .noise = 0.02};
  SliceTuner tuner({.blocks = kernel.blocks, .wave = kWave});
  double lost = 0;
  for (int i = 0; i < 6000; ++i) {
    const Blocks slice = tuner.next();
    tuner.observe(slice, kernel.run(slice));
    if (i >= 1000) lost += kernel.overhead(slice) / 5000;
  }
  EXPECT_LE(lost, 1.1 * kOverheadBound);
  EXPECT_NEAR(tuner.overhead(tuner.next()), kernel.overhead(tuner.next()), 0.01);
}

TEST(SliceTuner, LearnsNothingFromNonsense) {
  SliceTuner tuner({.blocks = 0, .wave = 0, .sms = 0});
  EXPECT_EQ(tuner.next(), 1u);
  tuner.observe(0, 5);
  tuner.observe(1, 0);
  tuner.observe(77, 1000);
  EXPECT_EQ(tuner.next(), 1u);
  EXPECT_LT(tuner.overhead(77), 0);
  tuner.observe(1, 1000);
  EXPECT_EQ(tuner.next(), 1u);
}

}  // namespace
}  // namespace bandsaw::slice
