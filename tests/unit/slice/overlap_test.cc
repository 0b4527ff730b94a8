// Occupancy, Cruz's predictor against the tables of the paper (a K40), and Bashizade's allocation.
#include "vgpu-sched/slice/overlap.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "tools/benchmarks/research/planning/metrics.h"
#include "vgpu-sched/slice/charge.h"
#include "vgpu-sched/slice/greedy.h"
#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::research {
namespace {

// Table 1.
GpuModel k40() { return {.blocks = 16, .register_unit = 1, .shared = 49152, .shared_block = 0, .sms = 15}; }

OverlapKernel kernel(Blocks blocks, int threads, int shared, int registers = 0) {
  return {
      .needs = {.threads = threads, .registers = registers, .shared = shared}, .blocks = blocks, .time = kMillisecond};
}

OverlapForecast packed(const OverlapKernel& first, const OverlapKernel& second) {
  return forecast_overlap(k40(), first, second, 10 * kMicrosecond, Placement::kPacked);
}

TEST(Overlap, SyntheticPairsOfTable3) {
  struct Row {
    OverlapKernel first, second;
    double actual;
  };
  const Row rows[] = {
      {kernel(110, 256, 1024), kernel(450, 256, 0), 11.312},  {kernel(100, 256, 4096), kernel(60, 256, 0), 3.018},
      {kernel(42, 512, 256), kernel(120, 128, 0), 1.998},     {kernel(90, 256, 896), kernel(467, 512, 256), 3.937},
      {kernel(35, 256, 2048), kernel(130, 512, 1024), 1.333}, {kernel(35, 256, 0), kernel(230, 256, 0), 1.494}};
  double error = 0;
  for (const Row& row : rows) {
    const OverlapForecast got = packed(row.first, row.second);
    EXPECT_EQ(got.overlap, Overlap::kFromStart);
    EXPECT_NEAR(got.slowdown, row.actual, 0.03 * row.actual);
    error += std::abs(got.slowdown - row.actual) / row.actual / 6;
  }
  std::printf("mean error against the measured slowdowns of table 3: %.2f %%\n", 100 * error);
}

TEST(Overlap, RealPairsOfTable5AsThePaperEstimates) {
  const OverlapKernel first = kernel(47, 128, 0, 13);
  EXPECT_NEAR(packed(first, kernel(3840, 256, 0, 8)).slowdown, 1.25, 0.005);
  EXPECT_NEAR(packed(first, kernel(463, 256, 2048, 13)).slowdown, 1.25, 0.005);
  EXPECT_NEAR(packed(first, kernel(1024, 256, 0, 36)).slowdown, 1.29, 0.015);
  EXPECT_NEAR(packed(first, kernel(1954, 512, 0, 19)).slowdown, 1.24, 0.005);
  EXPECT_NEAR(packed(first, kernel(1849, 256, 3072, 38)).slowdown, 1.24, 0.005);
  EXPECT_NEAR(packed(first, kernel(16384, 256, 5120, 21)).slowdown, 1.25, 0.005);
  EXPECT_NEAR(packed(first, kernel(1, 16, 1024, 32)).slowdown, 1.0, 0.005);
}

TEST(Overlap, CasesByGridAndTime) {
  const OverlapKernel second = kernel(60, 256, 0);
  const OverlapForecast full = packed(kernel(240, 256, 0), second);  // two whole rounds
  EXPECT_EQ(full.overlap, Overlap::kSequential);
  EXPECT_EQ(full.begins, kMillisecond);
  EXPECT_DOUBLE_EQ(full.slowdown_timed, 2);
  const OverlapForecast last = packed(kernel(270, 256, 0), second);
  EXPECT_EQ(last.overlap, Overlap::kLastRound);
  EXPECT_NEAR(static_cast<double>(last.begins), 2e6 / 3, 2);
  OverlapKernel brief = kernel(30, 256, 0);
  brief.time = 5 * kMicrosecond;
  EXPECT_EQ(packed(brief, second).overlap, Overlap::kSequential);
  EXPECT_EQ(packed(kernel(30, 256, 0), kernel(60, 256, 60000)).overlap, Overlap::kSequential);  // fits no SM
  EXPECT_EQ(packed(kernel(0, 256, 0), second).overlap, Overlap::kSequential);
}

TEST(Overlap, TheFirstLeavesAndTheRestGoesFaster) {
  OverlapKernel first = kernel(110, 256, 1024);
  OverlapKernel second = kernel(450, 256, 0);
  second.time = 20 * kMillisecond;
  const OverlapForecast got = packed(first, second);
  EXPECT_GT(got.slowdown, 11);
  EXPECT_NEAR(got.slowdown_timed, 1 + 0.05 * (1 - 1 / got.slowdown), 1e-6);
}

// As measured on an H200: launches of tools/benchmarks/research/pairs/overlaps.h, and what the second took from the
// first's start.
TEST(Overlap, WhoUsesUpTheIssueSlotsIsNotDisturbed) {
  const auto slowdown = [](int blocks, BlockNeeds needs, double ms, double issue, int others, BlockNeeds other,
                           double other_ms, double other_issue) {
    const auto kernel = [](int count, BlockNeeds its, double time, double slots) {
      return OverlapKernel{
          .needs = its, .blocks = static_cast<Blocks>(count), .time = static_cast<Time>(time * 1e6), .issue = slots};
    };
    return forecast_overlap(GpuModel{}, kernel(blocks, needs, ms, issue), kernel(others, other, other_ms, other_issue),
                            5 * kMicrosecond)
        .slowdown_timed;
  };
  // The second stands still on 61 SMs, whatever it has done elsewhere; by room and times alone 1.25 were said.
  EXPECT_NEAR(slowdown(61, {512, 104, 12288}, 32.0, 1, 1663, {512, 16, 12288}, 1.734, 1), 18.54, 0.3);
  // Some SMs have three blocks of the first and some two, and these are the second's from two thirds of the time on.
  EXPECT_NEAR(slowdown(365, {512, 16, 4096}, 13.0, 1, 5795, {128, 16, 4096}, 1.502, 1), 8.64, 0.4);
  // Where the first leaves no room, nothing stands still beside it.
  EXPECT_NEAR(slowdown(58, {512, 104, 0}, 1.01, 0.97, 499, {256, 118, 0}, 0.301, 0.08), 1.93, 0.1);
  // A second that a few warps keep busy is as fast where it has room, which is on 94 SMs.
  EXPECT_NEAR(slowdown(434, {128, 118, 4096}, 0.608, 0.08, 1202, {128, 104, 4096}, 0.316, 0.97), 1.46, 0.1);
  // It has what the first leaves.
  EXPECT_NEAR(slowdown(132, {256, 32, 0}, 100, 0.6, 1320, {256, 32, 0}, 1, 0.8), 2, 0.01);
  // Over before the second begins.
  EXPECT_NEAR(slowdown(365, {512, 16, 4096}, 0.004, 1, 5795, {128, 16, 4096}, 1, 1), 1.004, 1e-6);
}

TEST(Overlap, SpreadBlocksLeaveRoomOnEverySm) {
  const OverlapKernel first = kernel(47, 128, 0, 13);
  const OverlapForecast got = forecast_overlap(k40(), first, kernel(3840, 256, 0, 8), 0, Placement::kSpread);
  EXPECT_EQ(got.limited_rounds, 43u);  // 13 * 6 + 2 * 6 blocks at once
}

TEST(Occupancy, ByTheScarcestResource) {
  const GpuModel gpu;
  EXPECT_EQ(resident_blocks(gpu, {.threads = 256}), 8);
  EXPECT_EQ(resident_blocks(gpu, {.threads = 32}), 32);
  EXPECT_EQ(resident_blocks(gpu, {.threads = 256, .registers = 64}), 4);
  EXPECT_EQ(resident_blocks(gpu, {.threads = 256, .registers = 65}), 3);  // given out in eights
  EXPECT_EQ(resident_blocks(gpu, {.threads = 256, .registers = 0, .shared = 100000}), 2);
  EXPECT_EQ(resident_blocks(gpu, {.threads = 2000000000, .registers = 2000000000}), 0);
  EXPECT_EQ(resident_blocks(gpu, {.threads = 0}), 0);
  EXPECT_EQ(resident_blocks(gpu, {.threads = INT_MAX, .registers = INT_MAX, .shared = INT_MAX}), 0);
  EXPECT_DOUBLE_EQ(footprint(gpu, {.threads = 256, .registers = 64}, 2), 0.5);
  for (int count = 1; count <= 8; ++count) {
    BlockNeeds padded{.threads = 256};
    padded.shared += padding(gpu, padded, count);
    EXPECT_EQ(resident_blocks(gpu, padded), count);
  }
}

TEST(Greedy, TheOneThatEndsLastGetsMore) {
  const GpuModel gpu;
  const std::vector<double> scales = {800, 400, 267, 200, 160, 133, 114, 100};
  const std::vector<double> stalls = {200, 100, 100, 100, 99, 99, 99, 99};
  const BlockNeeds needs{.threads = 256};
  const std::vector<GreedyKernel> two = {{.needs = needs, .times = scales}, {.needs = needs, .times = stalls}};
  EXPECT_EQ(allocate_resident(gpu, two), (std::vector<int>{6, 2}));
  const std::vector<GreedyKernel> near_end = {{.needs = needs, .times = scales, .left = 0.1},
                                              {.needs = needs, .times = stalls, .left = 1}};
  EXPECT_EQ(allocate_resident(gpu, near_end), (std::vector<int>{3, 5}));
  EXPECT_EQ(allocate_resident(gpu, std::vector<GreedyKernel>{two[0]}), std::vector<int>{8});
  const std::vector<GreedyKernel> crowd(9, two[0]);
  EXPECT_EQ(allocate_resident(gpu, crowd), std::vector<int>(9, 1));
  EXPECT_TRUE(allocate_resident(gpu, {}).empty());
}

TEST(Metrics, ByTheirDefinitions) {
  const Outcome outcomes[] = {{.arrived = 10, .ended = 30, .alone = 10}, {.arrived = 0, .ended = 40, .alone = 20}};
  EXPECT_DOUBLE_EQ(system_throughput(outcomes), 1.0);
  EXPECT_DOUBLE_EQ(normalized_turnaround(outcomes), 2.0);
  EXPECT_EQ(total_time(outcomes), 40);
}

TEST(Charge, EachItsPartOfEveryMoment) {
  ChargeMeter meter;
  EXPECT_EQ(meter.end(1, 5), 0);
  EXPECT_TRUE(meter.begin(1, 0.5, 100));
  EXPECT_FALSE(meter.begin(1, 0.5, 100));
  EXPECT_TRUE(meter.begin(2, 0.25, 200));
  EXPECT_EQ(meter.end(1, 500), 100 + 200);
  EXPECT_EQ(meter.end(2, 600), 100 + 100);
  EXPECT_TRUE(meter.begin(4, 0.5, 600));
  EXPECT_TRUE(meter.begin(5, 0.5, 600));
  meter.resize(4, 0.875, 700);
  meter.resize(5, 0.125, 700);
  meter.resize(6, 1, 700);  // who does not run has no part
  EXPECT_EQ(meter.end(4, 860), 50 + 140);
  EXPECT_EQ(meter.end(5, 860), 50 + 20);
  EXPECT_TRUE(meter.begin(3, std::nan(""), 900));  // nobody ran before: nobody is charged
  EXPECT_EQ(meter.end(3, 950), 50);
}

}  // namespace
}  // namespace bandsaw::research
