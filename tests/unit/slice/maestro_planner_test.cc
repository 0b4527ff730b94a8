// GPU Maestro's planner: what it tries, what it keeps, and what it does with tenants that leave or lie.
#include "vgpu-sched/slice/maestro_planner.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/planning/make_planner.h"
#include "vgpu-sched/slice/occupancy.h"

namespace bandsaw::slice {
namespace {

class MaestroTest : public testing::Test {
 protected:
  MaestroTest() {
    for (const SimKernel& kernel : kernels_) model_.add(gpu_.profile(kernel, Known::kInstructionMix));
  }
  static ReadyKernel ready(KernelId id, ShapeId shape) {
    return {.id = id, .shape = shape, .blocks = 1 << 20, .left = 1 << 20, .minimum = 1056};
  }
  Plan plan(const std::vector<ReadyKernel>& kernels) {
    now_ += 5 * kMillisecond;
    return planner_.plan({.ready = kernels}, now_);
  }
  PairForecast truth(ShapeId a, int blocks_a, ShapeId b, int blocks_b) const {
    const double sms = gpu_.gpu().sms;
    const auto rates = gpu_.rates({{&kernels_[a], blocks_a * sms}, {&kernels_[b], blocks_b * sms}});
    return {.speed_a = rates[0] / gpu_.solo_rate(kernels_[a]), .speed_b = rates[1] / gpu_.solo_rate(kernels_[b])};
  }
  // An epoch of two kernels of the shapes, as measured. What it ran with; zeros where one ran alone.
  std::pair<int, int> epoch(ShapeId a, ShapeId b) {
    const Plan now = plan({ready(1, a), ready(2, b)});
    if (now.parts.size() < 2) return {};
    const bool ordered = now.parts[0].kernel == 1;
    const int blocks_a = now.parts[ordered ? 0 : 1].resident, blocks_b = now.parts[ordered ? 1 : 0].resident;
    const PairForecast speeds = truth(a, blocks_a, b, blocks_b);
    for (int i = 0; i < 4; ++i) model_.observe(a, blocks_a, b, blocks_b, speeds.speed_a, speeds.speed_b);
    return {blocks_a, blocks_b};
  }

  const SimGpu gpu_{GpuModel{}};
  std::vector<SimKernel> kernels_ = eight_kernels();
  CoRunModel model_{gpu_.gpu()};
  MaestroPlanner planner_{model_, {}, PartitionGoal::kThroughput};
  Time now_ = 0;
};

TEST_F(MaestroTest, FindsAPartitionThatNoNeighbourBeats) {
  int moved = 0;
  for (ShapeId a = 0; a < kernels_.size(); ++a) {
    for (ShapeId b = a + 1; b < kernels_.size(); ++b) {
      const auto even = epoch(a, b);
      ASSERT_GT(even.first, 0);
      std::pair<int, int> last = even;
      for (int i = 0; i < 60; ++i) {
        if (const auto one = epoch(a, b); one.first > 0) last = one;
      }
      const double found = truth(a, last.first, b, last.second).throughput();
      EXPECT_GE(found, truth(a, even.first, b, even.second).throughput() - 1e-9);
      moved += last != even;
    }
  }
  EXPECT_GT(moved, 5);
  EXPECT_GT(planner_.epochs(), 28u * 30);
}

TEST_F(MaestroTest, WhoLeavesInTheMiddleOfATrialIsTriedAgain) {
  (void)epoch(kPc, kTea);
  const Plan trial = plan({ready(1, kPc), ready(2, kTea)});
  ASSERT_EQ(trial.parts.size(), 2u);
  EXPECT_EQ(planner_.epochs(), 1u);
  const Plan alone = plan({ready(1, kPc)});
  ASSERT_EQ(alone.parts.size(), 1u);
  EXPECT_EQ(alone.parts[0].kernel, 1u);
  EXPECT_TRUE(plan({}).parts.empty());
  const Plan again = plan({ready(3, kPc), ready(4, kTea)});
  ASSERT_EQ(again.parts.size(), 2u);
  EXPECT_EQ(again.parts[0].resident, trial.parts[0].resident);
  EXPECT_EQ(again.parts[1].resident, trial.parts[1].resident);
  EXPECT_EQ(planner_.epochs(), 1u);
  // Its shape is another kernel's from now on.
  (void)plan({ready(3, kPc), ready(4, kTea)});
  model_.remove(kTea);
  EXPECT_EQ(plan({ready(3, kPc), ready(4, kTea)}).parts.size(), 1u);
}

// Of a pair one kernel goes and the other meets a third: its epoch begins anew, and what was tried before is not lost.
TEST_F(MaestroTest, WhoIsLeftFindsAnotherInTheMiddleOfATrial) {
  (void)epoch(kPc, kTea);
  const Plan trial = plan({ready(1, kPc), ready(2, kTea)});
  const Plan other = plan({ready(1, kPc), ready(5, kMm)});
  ASSERT_EQ(trial.parts.size(), 2u);
  ASSERT_EQ(other.parts.size(), 2u);
  EXPECT_EQ(other.parts[1].kernel, 5u);
  // What the pair that is gone would have measured is not held for the new one's.
  model_.observe(kPc, trial.parts[0].resident, kTea, trial.parts[1].resident, 0.9, 0.9);
  const Plan next = plan({ready(1, kPc), ready(5, kMm)});
  ASSERT_EQ(next.parts.size(), 2u);
  EXPECT_EQ(next.parts[0].resident, other.parts[0].resident);
  EXPECT_EQ(planner_.epochs(), 1u);
}

// What fits an SM on paper may be more than runs there: no plan has more blocks than were seen to fit.
TEST_F(MaestroTest, PartitionsAreNeverLargerThanTheGpu) {
  KernelProfile few = gpu_.profile(kernels_[kPc], Known::kInstructionMix);
  few.most_resident = 2;
  const ShapeId narrow = model_.add(few);
  for (int i = 0; i < 60; ++i) {
    const Plan now = plan({ready(1, narrow), ready(2, kTea)});
    ASSERT_FALSE(now.parts.empty());
    for (const Part& part : now.parts) {
      const Fit& fit = *model_.fit(part.kernel == 1 ? narrow : kTea);
      EXPECT_GE(part.resident, now.parts.size() == 2 ? 1 : 0);
      EXPECT_LE(part.resident, fit.resident);
    }
    if (now.parts.size() != 2) continue;
    const GpuModel& gpu = model_.gpu();
    const Room left =
        beside(gpu, room_of(gpu), kernels_[kPc].needs, now.parts[now.parts[0].kernel == 1 ? 0 : 1].resident);
    EXPECT_GE(fit(gpu, left, kernels_[kTea].needs), now.parts[now.parts[0].kernel == 1 ? 1 : 0].resident);
    model_.observe(narrow, now.parts[0].resident, kTea, now.parts[1].resident, 0.4 + 0.001 * i, 0.5);
  }
}

// A tenant that says that its blocks take no time, or for ever, or need nothing, gets no better plan than two kernels
// share, and the other its part.
TEST_F(MaestroTest, ProfilesThatLieTakeNothingFromTheOther) {
  for (const double block_ns : {1e-6, 1e12}) {
    KernelProfile lie = gpu_.profile(kernels_[kPc], Known::kInstructionMix);
    lie.block_ns = block_ns;
    lie.needs = {.threads = 32, .registers = 1};
    lie.half_speed = 2;
    const ShapeId liar = model_.add(lie);
    ASSERT_NE(liar, kNoShape);
    int with_tea = 0;
    for (int i = 0; i < 40; ++i) {
      const Plan now = plan({ready(1, liar), ready(2, kTea)});
      ASSERT_FALSE(now.parts.empty());
      for (const Part& part : now.parts) {
        EXPECT_LE(part.resident, model_.gpu().blocks);
        with_tea += part.kernel == 2;
      }
      if (now.parts.size() == 2) model_.observe(liar, now.parts[0].resident, kTea, now.parts[1].resident, 1, 0.2);
    }
    EXPECT_GT(with_tea, 0) << block_ns;
  }
}

TEST_F(MaestroTest, WhatFitsBesideNothingRunsAlone) {
  const ShapeId huge = model_.add({.needs = {.threads = 1024, .registers = 64}, .block_ns = 100});
  ASSERT_NE(huge, kNoShape);
  const Plan now = plan({ready(1, huge), ready(2, kTea)});
  ASSERT_EQ(now.parts.size(), 1u);
  EXPECT_EQ(now.parts[0].kernel, 1u);
  EXPECT_GT(now.parts[0].slice, 0u);
  // What can never run has no profile, and no part in pairs.
  EXPECT_EQ(plan({ready(1, kNoShape), ready(2, kTea)}).parts.size(), 1u);
}

TEST_F(MaestroTest, SpeedsThatCannotBeDecideNothing) {
  for (const double lie : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    for (int i = 0; i < 50; ++i) {
      const Plan now = plan({ready(1, kPc), ready(2, kTea)});
      ASSERT_FALSE(now.parts.empty());
      for (const Part& part : now.parts) EXPECT_LE(part.resident, model_.fit(part.kernel == 1 ? kPc : kTea)->resident);
      if (now.parts.size() == 2)
        model_.observe(kPc, now.parts[0].resident, kTea, now.parts[1].resident, lie, i % 2 ? lie : 0.5);
    }
  }
}

TEST_F(MaestroTest, WholeMixesEndAndArePaired) {
  for (const char* const mode : {"maestro-antt", "maestro-stp"}) {
    SpeedMeter meter(model_);
    const std::vector<Job> jobs = poisson_jobs(gpu_, kernels_, mixes()[2], 25, 20 * kMillisecond, 5);
    const auto run = [&](const char* name, SpeedMeter* measured) {
      return Simulation(gpu_, kernels_, minimums(gpu_, kernels_, 20 * kMillisecond),
                        research::make_planner(name, model_), {}, measured)
          .run(jobs)
          .seconds();
    };
    const double tried = run(mode, &meter), sliced = run("time-sliced", nullptr);
    std::printf("%s: %.3f s, time slicing %.3f s, %lu measured\n", mode, tried, sliced, meter.observed());
    EXPECT_LT(tried, sliced);
    EXPECT_GT(meter.observed(), 20u);
  }
}

}  // namespace
}  // namespace bandsaw::slice
