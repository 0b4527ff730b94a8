// What single planners do in small cases, and what the model keeps.
#include "vgpu-sched/slice/planner.h"
#include "tools/benchmarks/research/planning/make_planner.h"

#include <gtest/gtest.h>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/planning/profit_table.h"
#include "vgpu-sched/slice/grid_slice_sizes.h"
#include "vgpu-sched/slice/profiler.h"

namespace bandsaw::slice {
namespace {

class PlannerTest : public testing::Test {
 protected:
  PlannerTest() {
    for (const SimKernel& kernel : kernels) model.add(gpu.profile(kernel, Known::kCounts));
  }

  ReadyKernel ready(KernelId id, ShapeId shape, Time since = 0, Blocks minimum = 1056) {
    return {.id = id, .shape = shape, .blocks = 1 << 20, .left = 1 << 20, .minimum = minimum, .ready_since = since};
  }
  Plan plan(const std::string& mode, const std::vector<ReadyKernel>& kernels_ready, Time now = 0) {
    return research::make_planner(mode, model, options, &table)->plan({.ready = kernels_ready}, now);
  }
  static std::vector<KernelId> ids(const Plan& plan) {
    std::vector<KernelId> all;
    for (const Part& part : plan.parts) all.push_back(part.kernel);
    std::sort(all.begin(), all.end());
    return all;
  }

  SimGpu gpu{GpuModel{}};
  std::vector<SimKernel> kernels = eight_kernels();
  CoRunModel model{gpu.gpu()};
  SimTable table{gpu, kernels};
  PlannerOptions options;
};

using Ids = std::vector<KernelId>;

TEST_F(PlannerTest, NamesAreKnown) {
  EXPECT_EQ(research::make_planner("opt", model), nullptr);
  EXPECT_EQ(research::make_planner("", model), nullptr);
  for (const char* mode : {"time-sliced", "mps", "consolidation", "slices-fifo", "kernelet", "random", "opt"}) {
    EXPECT_TRUE(plan(mode, {}).parts.empty()) << mode;
  }
}

TEST_F(PlannerTest, KerneletTakesTheComplementaryPair) {
  const std::vector<ReadyKernel> all = {ready(1, kTea), ready(2, kBs), ready(3, kMriq), ready(4, kSad)};
  const Plan got = plan("kernelet", all);
  ASSERT_EQ(got.parts.size(), 2u);
  EXPECT_EQ(ids(got), (Ids{3, 4}));
  EXPECT_GT(got.profit, 0.3);
  EXPECT_EQ(ids(plan("opt", all)), (Ids{3, 4}));
  for (const Part& part : got.parts) {
    EXPECT_EQ(part.slice % 132, 0u);
    EXPECT_GE(part.slice, 1056u / 2);  // as long as its minimum alone, beside another
  }
}

TEST_F(PlannerTest, KerneletDoesNotPairWhatGainsNothing) {
  const Plan got = plan("kernelet", {ready(1, kTea), ready(2, kMriq), ready(3, kTea)});
  EXPECT_EQ(ids(got), Ids{1});
  EXPECT_GE(got.parts[0].slice, 1056u);
}

TEST_F(PlannerTest, WhoWaitsLongIsOneOfThePair) {
  const std::vector<ReadyKernel> all = {ready(1, kBs, 0), ready(2, kMriq, 1), ready(3, kSad, 2)};
  EXPECT_EQ(ids(plan("kernelet", all, kMillisecond)), (Ids{2, 3}));
  EXPECT_EQ(ids(plan("kernelet", all, 10 * kSecond)), (Ids{1, 3}));
  // One that may not be sliced goes when its turn comes.
  const std::vector<ReadyKernel> late = {ready(2, kMriq, 1), ready(3, kSad, 2), ready(1, kBs, 3, 0)};
  EXPECT_EQ(ids(plan("kernelet", late, kMillisecond)), (Ids{2, 3}));
  const std::vector<ReadyKernel> whole = {ready(1, kBs, 0, 0), ready(2, kMriq, 1), ready(3, kSad, 2)};
  const Plan alone = plan("kernelet", whole, 10 * kSecond);
  EXPECT_EQ(ids(alone), Ids{1});
  EXPECT_EQ(alone.parts[0].slice, 0u);  // may not be sliced
}

TEST_F(PlannerTest, GridSlicesOfAPairEndTogether) {
  for (ShapeId a = 0; a < kernels.size(); ++a) {
    for (ShapeId b = 0; b < kernels.size(); ++b) {
      if (a == b) continue;
      const Fit& first = *model.fit(a);
      const Fit& second = *model.fit(b);
      for (const Ratio& ratio : ratios_of(gpu.gpu(), first, second, 0)) {
        const PairForecast forecast = model.pair(a, ratio.a, b, ratio.b);
        const GridSlices slices = balanced_grid_slices(gpu.gpu(), first, ratio.a, 132, second, ratio.b, 132, forecast);
        const double time_a = static_cast<double>(slices.a) * first.profile.block_ns / forecast.speed_a;
        const double time_b = static_cast<double>(slices.b) * second.profile.block_ns / forecast.speed_b;
        // As near as whole rows of one block per SM allow.
        const double rows = static_cast<double>(std::min(slices.a, slices.b)) / gpu.gpu().sms;
        EXPECT_NEAR(std::log(time_a / time_b), 0, 0.05 + 0.6 / rows) << kernels[a].name << " " << kernels[b].name;
      }
    }
  }
}

TEST_F(PlannerTest, RatiosFillAnSm) {
  const BlockNeeds needs[] = {{.threads = 64}, {.threads = 512, .registers = 0, .shared = 60000}, {.threads = 32}};
  std::vector<Fit> fits;
  for (const BlockNeeds& one : needs) fits.push_back(*model.fit(model.add({.needs = one, .block_ns = 5})));
  for (const Ratio& ratio : ratios_of(gpu.gpu(), fits[0], fits[1], 0)) {
    const Room left = beside(gpu.gpu(), beside(gpu.gpu(), room_of(gpu.gpu()), needs[0], ratio.a), needs[1], ratio.b);
    EXPECT_EQ(fit(gpu.gpu(), left, needs[1]), 0);
    EXPECT_EQ(fit(gpu.gpu(), left, needs[0]), 0);
  }
  EXPECT_LE(ratios_of(gpu.gpu(), fits[0], fits[2], 6).size(), 6u);
  const Fit small = *model.fit(model.add({.needs = needs[0], .block_ns = 5, .most_resident = 1}));
  for (const Ratio& ratio : ratios_of(gpu.gpu(), small, fits[2], 0)) EXPECT_EQ(ratio.a, 1);
}

TEST_F(PlannerTest, ShortKernelsGoAtOnce) {
  ReadyKernel brief = ready(3, kTea, 9);
  brief.blocks = brief.left = 2000;
  ReadyKernel one_grid_slice = ready(4, kMriq, 9, 1 << 20);
  ReadyKernel unknown = ready(5, kNoShape, 9, 0);
  const std::vector<ReadyKernel> all = {ready(1, kMriq), ready(2, kSad), brief, one_grid_slice, unknown};
  const Plan got = plan("kernelet", all);
  EXPECT_EQ(ids(got), (Ids{1, 2, 3, 4, 5}));
  for (const Part& part : got.parts) EXPECT_EQ(part.slice > 0, part.kernel <= 2);
  EXPECT_EQ(ids(plan("kernelet", {brief})), Ids{3});
}

TEST_F(PlannerTest, ConsolidationRunsTwoWholeKernels) {
  std::vector<ReadyKernel> all = {ready(1, kTea), ready(2, kMm), ready(3, kBs)};
  Plan got = plan("consolidation", all);
  EXPECT_EQ(ids(got), (Ids{1, 3}));  // MM takes more of an SM
  EXPECT_EQ(got.parts[0].slice, 0u);
  all[0].left = 0;
  EXPECT_EQ(ids(plan("consolidation", all)), Ids{3});
  all[1].left = 0;
  EXPECT_TRUE(plan("consolidation", all).parts.empty());
}

TEST_F(PlannerTest, PersistentSharesTheSmsAmongAll) {
  const Plan got = plan("persistent-greedy", {ready(1, kTea), ready(2, kSad), ready(3, kPc)});
  ASSERT_EQ(got.parts.size(), 3u);
  Room room = room_of(gpu.gpu());
  const ShapeId shapes[] = {kTea, kSad, kPc};
  for (int i = 0; i < 3; ++i) {
    ASSERT_GE(got.parts[i].resident, 1);
    ASSERT_GE(fit(gpu.gpu(), room, kernels[shapes[i]].needs), got.parts[i].resident);
    room = beside(gpu.gpu(), room, kernels[shapes[i]].needs, got.parts[i].resident);
  }
}

TEST_F(PlannerTest, EvenGivesTwoHalfOfEachSm) {
  const Plan got = plan("even", {ready(1, kTea), ready(2, kTea), ready(3, kPc), ready(4, kMm)});
  ASSERT_EQ(got.parts.size(), 2u);
  EXPECT_EQ(got.parts[0].kernel, 1u);
  EXPECT_EQ(got.parts[1].kernel, 3u);
  EXPECT_EQ(got.parts[0].resident, 4);
  EXPECT_EQ(got.parts[1].resident, 4);
  EXPECT_EQ(ids(plan("even", {ready(1, kTea), ready(2, kTea)})), Ids{1});
  EXPECT_EQ(ids(plan("even", {ready(1, kTea, 0, 0), ready(2, kPc)})), Ids{1});  // what may not be cut has it alone
  EXPECT_TRUE(plan("even", {}).parts.empty());
}

TEST_F(PlannerTest, OneDecisionSolvesABoundedNumberOfChains) {
  std::vector<ReadyKernel> all;
  for (KernelId id = 0; id < 16; ++id) {
    KernelProfile profile = model.fit(static_cast<ShapeId>(id % 8))->profile;
    profile.block_ns *= 1.0 + 0.02 * static_cast<double>(id);
    all.push_back(ready(id, model.add(profile)));
  }
  const auto planner = research::make_planner("kernelet", model, options);
  std::uint64_t before = model.solved();
  planner->plan({.ready = all}, 0);
  EXPECT_LE(model.solved() - before, static_cast<std::uint64_t>(options.solves + options.ratios));
  for (int i = 0; i < 40; ++i) planner->plan({.ready = all}, 0);
  before = model.solved();
  planner->plan({.ready = all}, 0);
  EXPECT_LE(model.solved() - before, static_cast<std::uint64_t>(options.ratios));  // all is known
}

TEST_F(PlannerTest, TheModelForgetsWithTheProfile) {
  const PairForecast forecast = model.pair(kTea, 4, kSad, 3);
  EXPECT_FALSE(forecast.measured);
  model.observe(kSad, 3, kTea, 4, 0.25, 0.5);
  EXPECT_TRUE(model.pair(kTea, 4, kSad, 3).measured);
  EXPECT_DOUBLE_EQ(model.pair(kTea, 4, kSad, 3).speed_a, 0.5);
  EXPECT_DOUBLE_EQ(model.pair(kSad, 3, kTea, 4).speed_a, 0.25);
  KernelProfile profile = model.fit(kTea)->profile;
  profile.block_ns *= 1.01;
  EXPECT_EQ(model.update(kTea, profile), Error::kNone);
  EXPECT_TRUE(model.pair(kTea, 4, kSad, 3).measured);
  profile.block_ns *= 2;
  EXPECT_EQ(model.update(kTea, profile), Error::kNone);
  EXPECT_FALSE(model.pair(kTea, 4, kSad, 3).measured);
}

TEST_F(PlannerTest, TheModelRefusesWhatIsNoProfile) {
  EXPECT_EQ(model.add({.needs = {.threads = 256}, .block_ns = 0}), kNoShape);
  EXPECT_EQ(model.add({.needs = {.threads = 256}, .block_ns = std::nan("")}), kNoShape);
  EXPECT_EQ(model.add({.needs = {.threads = 256}, .block_ns = 5, .memory = 2}), kNoShape);
  EXPECT_EQ(model.add({.needs = {.threads = 0}, .block_ns = 5}), kNoShape);
  EXPECT_EQ(model.add({.needs = {.threads = 256, .registers = 0, .shared = 1 << 30}, .block_ns = 5}), kNoShape);
  EXPECT_EQ(model.update(4000, {.needs = {.threads = 256}, .block_ns = 5}), Error::kBadProfile);
  EXPECT_EQ(model.pair(4000, 1, kTea, 1).throughput(), 0);
  const ShapeId shape = model.add({.needs = {.threads = 256}, .block_ns = 5});
  model.remove(shape);
  EXPECT_EQ(model.fit(shape), nullptr);
  EXPECT_EQ(model.add({.needs = {.threads = 128}, .block_ns = 5}), shape);
  for (std::size_t i = shape + 1; i < kMaxShapes; ++i) model.add({.needs = {.threads = 256}, .block_ns = 5});
  EXPECT_EQ(model.add({.needs = {.threads = 256}, .block_ns = 5}), kNoShape);
}

TEST_F(PlannerTest, OptTakesOnlyWhatWasMeasured) {
  research::ProfitTable measured;
  measured.set(kSad, 3, kTea, 4, 0.6, 0.9);
  measured.set(kSad, 2, kTea, 5, 0.5, 0.8);
  EXPECT_DOUBLE_EQ(measured.pair(kTea, 4, kSad, 3).speed_a, 0.9);
  EXPECT_EQ(measured.pair(kTea, 1, kSad, 1).throughput(), 0);
  const auto planner = research::make_planner("opt", model, options, &measured);
  const std::vector<ReadyKernel> all = {ready(1, kPc), ready(2, kTea), ready(3, kSad)};
  const Plan got = planner->plan({.ready = all}, 0);
  EXPECT_EQ(ids(got), (Ids{2, 3}));
  EXPECT_NEAR(got.profit, 1 - 1 / 1.5, 1e-9);
  for (const Part& part : got.parts) EXPECT_EQ(part.resident, part.kernel == 2 ? 4 : 3);
}

TEST(Profiler, LowerQuartilesOfWhatWasMeasured) {
  Profiler profiler({.needs = {.threads = 256}, .memory = 0.05});
  EXPECT_FALSE(profiler.ready());
  profiler.full(0, 10);
  profiler.full(10, 0);
  EXPECT_FALSE(profiler.ready());
  for (int i = 0; i < 40; ++i) profiler.full(1000, i % 4 == 0 ? 90000 : 20000);
  EXPECT_DOUBLE_EQ(profiler.profile().block_ns, 20);
  EXPECT_EQ(profiler.profile().half_speed, 0);
  profiler.half(500, 12500);
  EXPECT_NEAR(profiler.profile().half_speed, 0.8, 1e-6);
}

}  // namespace
}  // namespace bandsaw::slice
