// What is said of short work beside persistent blocks, and what is learnt where it was wrong.
#include "vgpu-sched/slice/short_work.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bandsaw::slice {
namespace {

constexpr BlockNeeds k256{.threads = 256};

OverlapKernel work(int threads, Blocks blocks = 132, Time time = 100 * kMicrosecond) {
  return {.needs = {.threads = threads}, .blocks = blocks, .time = time};
}

TEST(ShortWork, FindsTheRoomThatIsThere) {
  const GpuModel gpu;
  const std::vector<RunningKernel> full = {{.needs = k256, .resident = 8, .left = 20 * kMillisecond}};
  ShortWorkForecast forecast = forecast_short_work(gpu, full, work(128));
  EXPECT_FALSE(forecast.room);
  EXPECT_EQ(forecast.begins, 20 * kMillisecond);
  EXPECT_EQ(forecast.make_way, 1);
  EXPECT_NEAR(forecast.cost, 8.0 / 7, 1e-9);
  EXPECT_NEAR(forecast.slowdown, 201, 1);  // it waits for all of it

  const std::vector<RunningKernel> less = {{.needs = k256, .resident = 7, .left = 20 * kMillisecond}};
  forecast = forecast_short_work(gpu, less, work(128));
  EXPECT_TRUE(forecast.room);
  EXPECT_NEAR(forecast.slowdown, 1, 1e-9);
  // Eight of its blocks lie on each SM alone, one beside the others.
  EXPECT_NEAR(forecast_short_work(gpu, less, work(256, 8 * 132)).slowdown, 8, 1e-9);
}

TEST(ShortWork, LargeBlocksNeedSeveralToMakeWay) {
  const GpuModel gpu;
  const std::vector<RunningKernel> full = {{.needs = k256, .resident = 8, .left = kMillisecond}};
  EXPECT_EQ(forecast_short_work(gpu, full, work(1024)).make_way, 4);
  // Nobody gives more than half for the sake of others' short work.
  OverlapKernel larger = work(256);
  larger.needs.registers = 200;
  const std::vector<RunningKernel> registers = {
      {.needs = {.threads = 256, .registers = 32}, .resident = 8, .left = kMillisecond}};
  EXPECT_EQ(forecast_short_work(gpu, registers, larger).make_way, 0);
}

TEST(ShortWork, AllThatRunsTakesRoom) {
  const GpuModel gpu;
  std::vector<RunningKernel> pair = {{.needs = k256, .resident = 5, .left = 3 * kMillisecond},
                                     {.needs = k256, .resident = 3, .left = 9 * kMillisecond}};
  const ShortWorkForecast forecast = forecast_short_work(gpu, pair, work(256));
  EXPECT_FALSE(forecast.room);
  EXPECT_EQ(forecast.begins, 9 * kMillisecond);
  EXPECT_EQ(forecast.make_way, 1);
  pair[1].resident = 2;
  EXPECT_TRUE(forecast_short_work(gpu, pair, work(256)).room);
  EXPECT_FALSE(forecast_short_work(gpu, pair, work(512)).room);
  EXPECT_TRUE(forecast_short_work(gpu, {}, work(512)).room);
}

TEST(ShortWork, NonsenseIsNoForecastAndNoHarm) {
  const GpuModel gpu;
  const int most = std::numeric_limits<int>::max();
  const std::vector<RunningKernel> lies = {{.needs = {most, most, most}, .resident = most, .left = -1},
                                           {.needs = k256, .resident = most, .left = 1}};
  for (const OverlapKernel& one : {work(0), work(most, ~Blocks{0}), work(256, 0), work(32, ~Blocks{0}, 0)}) {
    const ShortWorkForecast forecast = forecast_short_work(gpu, lies, one);
    EXPECT_GE(forecast.slowdown, 1);
    EXPECT_LE(forecast.make_way, 16);
  }
}

TEST(ShortWorkTimes, ErrorsAreLearnt) {
  ShortWorkTimes times;
  const ShortWorkTimes::Key key{1, 2};
  EXPECT_EQ(times.alone(key), 0);
  times.learn_alone(key, 1000);
  times.learn_alone(key, 2000);
  EXPECT_EQ(times.alone(key), 1250);
  for (int i = 0; i < 40; ++i) {
    const auto forecast = static_cast<Time>(1000 * times.correction(key));
    times.learn_beside(key, forecast, 3000);
    if (i == 0) {
      EXPECT_NEAR(times.error(), 2.0 / 3, 1e-9);
    }
  }
  EXPECT_NEAR(times.correction(key), 3, 0.01);
  EXPECT_LT(times.error(), 0.02);
  EXPECT_EQ(times.judged(), 40u);
  EXPECT_EQ(times.correction({2, 2}), 1) << "others' work says nothing of it";
  for (int i = 0; i < 1000; ++i) times.learn_beside(key, 1, std::numeric_limits<Time>::max() / 2);
  EXPECT_LE(times.correction(key), 64);
}

TEST(ShortWorkTimes, NobodyFillsItForOthers) {
  ShortWorkTimes times;
  times.learn_alone({7, 1}, 500);
  for (std::uint64_t shape = 0; shape < 10 * ShortWorkTimes::kMost; ++shape) times.learn_alone({6, shape}, 100);
  EXPECT_EQ(times.alone({7, 1}), 500);
  EXPECT_EQ(times.alone({6, 0}), 0) << "the oldest have gone";
  EXPECT_EQ(times.alone({6, 10 * ShortWorkTimes::kMost - 1}), 100);
  times.forget_owner(6);
  EXPECT_EQ(times.alone({6, 10 * ShortWorkTimes::kMost - 1}), 0);
  EXPECT_EQ(times.alone({7, 1}), 500);
}

}  // namespace
}  // namespace bandsaw::slice
