#include "vgpu-sched/slice/tuner.h"

#include <gtest/gtest.h>

#include <random>

namespace bandsaw::slice {
namespace {

constexpr Blocks kWave = 8 * 132;

// A kernel whose block takes `block`, and each grid slice `cost` beside; grid slices that do not fill the GPU take as
// long as if they did. Some launches take up to ten times as long.
struct Kernel {
  Blocks blocks;
  double block;
  double cost;
  double noise;
  Blocks filling = kWave / 2;
  double slower = 1;  // in grid slices, of whatever size
  double neighbour = 1;
  std::mt19937_64 random{7};

  double time(Blocks slice) const {
    const double whole = block * static_cast<double>(blocks), slices = static_cast<double>((blocks - 1) / slice);
    const double idle = slice < filling ? static_cast<double>(filling) / static_cast<double>(slice) : 1;
    return neighbour * (slice == blocks ? whole : slower * idle * whole + cost * slices);
  }
  Time run(Blocks slice) {
    std::normal_distribution<double> normal(1, noise);
    double took = time(slice) * std::max(normal(random), 0.2);
    if (noise > 0 && random() % 20 == 0) took *= 1 + static_cast<double>(random() % 10);
    return static_cast<Time>(took);
  }
  double overhead(Blocks slice) const { return time(slice) / time(blocks) - 1; }
};

// As on an H200: 28 ms, 100 waves.
Kernel long_kernel(double cost) { return {.blocks = 100 * kWave, .block = 265, .cost = cost, .noise = 0.002}; }

GridSliceTuner tuner_of(const Kernel& kernel) {
  return GridSliceTuner({.blocks = kernel.blocks, .wave = kWave, .beside = 2, .overhead = kMicrosecond});
}

void run(GridSliceTuner* tuner, Kernel* kernel, int launches) {
  for (int i = 0; i < launches; ++i) {
    const Blocks slice = tuner->next();
    tuner->observe(slice, kernel->run(slice));
  }
}

TEST(Tuner, AKernelThatWasShortFirstBeginsAnew) {
  GridSliceTuner tuner({.blocks = 100 * kWave, .wave = kWave, .sms = 132, .beside = 2, .overhead = kMicrosecond});
  tuner.observe(100 * kWave, 110 * kMicrosecond);  // by its arguments
  EXPECT_GT(tuner.next(), 10 * kWave);
  Kernel kernel = long_kernel(1e3);
  for (int i = 0; i < 12; ++i) tuner.observe(tuner.next(), kernel.run(tuner.next()));
  EXPECT_LE(tuner.next(), kWave);
}

TEST(MinimumGridSlice, KeepsTheOverheadWithinTheBound) {
  GridSliceCost cost{.whole = 28 * kMillisecond, .overhead = 3 * kMicrosecond, .blocks = 42240, .wave = kWave};
  const Blocks slice = minimum_grid_slice(cost);
  EXPECT_EQ(slice, 264u);  // 187 cuts allowed: 226 blocks, in rows of 132
  EXPECT_EQ(minimum_grid_slice(cost, 0.002) % kWave, 0u);
  cost.whole = 100 * kMicrosecond;
  EXPECT_EQ(minimum_grid_slice(cost), cost.blocks);  // not worth a cut
  cost.whole = 0;
  EXPECT_EQ(minimum_grid_slice(cost), cost.blocks);
}

TEST(MinimumGridSlice, NeverBreaksItsWord) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100000; ++i) {
    const GridSliceCost cost{.whole = static_cast<Time>(random() % (100 * kMillisecond)),
                             .overhead = static_cast<Time>(random() % (50 * kMicrosecond)),
                             .blocks = random() % 1000000 + 1,
                             .wave = 132 * (random() % 32 + 1)};
    const Blocks slice = minimum_grid_slice(cost);
    ASSERT_GE(slice, 1u);
    ASSERT_LE(slice, cost.blocks);
    if (slice == cost.blocks) continue;
    ASSERT_EQ(slice % 132, 0u);
    const Blocks slices = (cost.blocks + slice - 1) / slice;
    ASSERT_LE(static_cast<double>((slices - 1) * cost.overhead), kOverheadBound * static_cast<double>(cost.whole) + 1);
  }
}

TEST(GridSliceTuner, BeginsWithGridSlicesThatFillTheGpuTogether) {
  Kernel kernel = long_kernel(500);
  GridSliceTuner tuner = tuner_of(kernel);
  EXPECT_EQ(tuner.next(), kernel.blocks);
  run(&tuner, &kernel, 1);
  EXPECT_EQ(tuner.next(), kWave / 2);
  run(&tuner, &kernel, 2000);
  EXPECT_EQ(tuner.next(), kWave / 2);
  EXPECT_LT(kernel.overhead(tuner.next()), kOverheadBound / 2);
}

TEST(GridSliceTuner, SettlesWithinTwentyLaunches) {
  for (const double cost : {1000.0, 5000.0, 20000.0, 60000.0}) {
    Kernel kernel = long_kernel(cost);
    GridSliceTuner tuner = tuner_of(kernel);
    run(&tuner, &kernel, 20);
    std::printf("%.0f us a slice: %.1f waves, %.2f %%\n", cost / 1000, static_cast<double>(tuner.next()) / kWave,
                100 * kernel.overhead(tuner.next()));
    EXPECT_LE(kernel.overhead(tuner.next()), kOverheadBound) << cost;
    EXPECT_GE(tuner.next(), kWave / 2) << cost;
    const bool least = tuner.next() == kWave / 2 || kernel.overhead(tuner.next() / 2) > 0.5 * kOverheadBound;
    EXPECT_TRUE(least) << cost;
  }
}

TEST(GridSliceTuner, FindsTheLeastGridSliceThroughNoise) {
  for (const double noise : {0.0, 0.005, 0.01, 0.02}) {
    Kernel kernel{.blocks = 400 * kWave, .block = 30, .cost = 4000, .noise = noise};
    GridSliceTuner tuner = tuner_of(kernel);
    double lost = 0, blocks = 0;
    int count = 0;
    for (int i = 0; i < 20000; ++i) {
      const Blocks slice = tuner.next();
      tuner.observe(slice, kernel.run(slice));
      if (i < 100) continue;
      lost += kernel.overhead(slice);
      blocks += static_cast<double>(slice);
      ++count;
    }
    std::printf("noise %.1f %%: mean overhead %.2f %%, mean slice %.1f waves\n", 100 * noise, 100 * lost / count,
                blocks / count / kWave);
    EXPECT_FALSE(tuner.hopeless());
    EXPECT_LE(lost / count, kOverheadBound);
    EXPECT_LE(blocks / count, static_cast<double>(kernel.blocks) / 4);
  }
}

TEST(GridSliceTuner, ANeighbourDoesNotMakeGridSlicesLarger) {
  Kernel kernel = long_kernel(500);
  GridSliceTuner tuner = tuner_of(kernel);
  for (const double neighbour : {1.0, 1.8, 1.2, 1.0, 2.5}) {
    kernel.neighbour = neighbour;
    run(&tuner, &kernel, 40);
    EXPECT_EQ(tuner.next(), kWave / 2) << neighbour;
  }
}

TEST(GridSliceTuner, NeighboursThatComeAndGoAreNotLaidToGridSlices) {
  Kernel kernel = long_kernel(500);
  GridSliceTuner tuner = tuner_of(kernel);
  run(&tuner, &kernel, 20);
  std::mt19937_64 random(5);
  int whole = 0;
  double waves = 0;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 4 == 0) kernel.neighbour = 1 + static_cast<double>(random() % 100) / 60;
    const Blocks slice = tuner.next();
    whole += slice == kernel.blocks;
    waves += static_cast<double>(slice) / kWave / 5000;
    tuner.observe(slice, kernel.run(slice));
  }
  std::printf("%d of 5000 launches whole, else %.2f waves\n", whole, waves);
  EXPECT_FALSE(tuner.hopeless());
  EXPECT_LE(whole, 25);
  EXPECT_LE(waves, 2);
}

TEST(GridSliceTuner, AVariantThatIsSlowerByItselfIsGivenUp) {
  Kernel kernel = long_kernel(500);
  kernel.slower = 1.25;
  GridSliceTuner tuner = tuner_of(kernel);
  run(&tuner, &kernel, 60);
  EXPECT_TRUE(tuner.hopeless());
  EXPECT_EQ(tuner.next(), kernel.blocks);
}

TEST(GridSliceTuner, GoesBackWhenGridSlicesHaveBecomeCheap) {
  Kernel kernel = long_kernel(20000);
  GridSliceTuner tuner = tuner_of(kernel);
  run(&tuner, &kernel, 30);
  EXPECT_GE(tuner.next(), 4 * kWave);
  kernel.cost = 500;
  run(&tuner, &kernel, 3000);
  EXPECT_LE(tuner.next(), kWave);
}

TEST(GridSliceTuner, GridSlicesOneAfterTheOtherAreLarger) {
  Kernel kernel = long_kernel(30000);
  kernel.filling = kWave;
  GridSliceTuner tuner = tuner_of(kernel);
  run(&tuner, &kernel, 1);
  tuner.run_beside(1, 30 * kMicrosecond);
  EXPECT_GE(tuner.next(), 5 * kWave);
  run(&tuner, &kernel, 20);
  EXPECT_LE(kernel.overhead(tuner.next()), kOverheadBound);
  tuner.run_beside(2, kMicrosecond);
  EXPECT_EQ(tuner.next(), kWave / 2);
}

TEST(GridSliceTuner, LearnsNothingFromNonsense) {
  GridSliceTuner tuner({.blocks = 0, .wave = 0, .sms = 0});
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
