// The modes against each other on Kernelet's mixes, and the model's forecasts against the simulated GPU.
#include <gtest/gtest.h>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/planning/make_planner.h"

namespace bandsaw::slice {
namespace {

constexpr Time kLength = 20 * kMillisecond;

class World {
 public:
  explicit World(Known known = Known::kHalf) : model(gpu.gpu()), table(gpu, kernels) {
    for (const SimKernel& kernel : kernels) model.add(gpu.profile(kernel, known));
  }

  SimResult run(const std::string& mode, const std::vector<Job>& jobs, const SimOptions& options = {},
                bool measure = false) {
    auto planner = research::make_planner(mode, model, {}, &table);
    return Simulation(gpu, kernels, minimums(gpu, kernels, kLength), std::move(planner), options,
                      measure ? &meter : nullptr)
        .run(jobs);
  }

  SimGpu gpu{GpuModel{}};
  std::vector<SimKernel> kernels = eight_kernels();
  CoRunModel model;
  SpeedMeter meter{model};
  SimTable table;
};

const char* const kModes[] = {"time-sliced", "mps",    "consolidation",     "slices-fifo",
                              "kernelet",    "random", "persistent-greedy", "opt"};

TEST(Scenario, KerneletsMixesInEveryMode) {
  for (const Mix& mix : mixes()) {
    World world;
    const std::vector<Job> jobs = poisson_jobs(world.gpu, world.kernels, mix, 25, kLength, 11);
    std::map<std::string, double> seconds;
    for (const char* mode : kModes) {
      const SimResult result = world.run(mode, jobs);
      EXPECT_EQ(result.refused, 0) << mode;
      seconds[mode] = result.seconds();
      std::printf("%-4s %-18s %7.3f s  STP %5.2f  ANTT %6.2f  slices %6llu  plans %llu\n", mix.name, mode,
                  result.seconds(), research::system_throughput(result.outcomes),
                  research::normalized_turnaround(result.outcomes), static_cast<unsigned long long>(result.slices),
                  static_cast<unsigned long long>(result.plans));
    }
    EXPECT_LE(seconds["kernelet"], 1.1 * seconds["opt"]) << mix.name;
    EXPECT_LE(seconds["kernelet"], 1.005 * seconds["consolidation"]) << mix.name;
    EXPECT_LE(seconds["kernelet"], 1.005 * seconds["slices-fifo"]) << mix.name;
    if (mix.name[0] == 'C') continue;  // kernels that all want the same gain nothing beside each other
    EXPECT_LE(seconds["kernelet"], 0.95 * seconds["time-sliced"]) << mix.name;
    EXPECT_LE(seconds["kernelet"], 0.95 * seconds["consolidation"]) << mix.name;
    EXPECT_LE(seconds["kernelet"], 0.95 * seconds["slices-fifo"]) << mix.name;
  }
}

// A short kernel every 5 ms beside long ones that fill the GPU.
TEST(Scenario, ShortKernelsWaitForAGridSliceAndNotForAKernel) {
  double worst[2];
  for (const bool slices : {false, true}) {
    World world;
    std::vector<Job> jobs;
    for (Time now = 0; now < kSecond; now += 100 * kMillisecond) {
      jobs.push_back({.kind = kTea, .blocks = 2000000, .arrival = now});
      jobs.push_back({.kind = kSpmv, .blocks = 60000, .arrival = now});
    }
    for (Time now = kMillisecond; now < kSecond; now += 5 * kMillisecond) {
      jobs.push_back({.kind = kBs, .blocks = 264, .arrival = now});
    }
    std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.arrival < b.arrival; });
    const SimResult result = world.run(slices ? "kernelet" : "mps", jobs);
    std::vector<Time> turnarounds;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i].kind == kBs) turnarounds.push_back(result.outcomes[i].ended - result.outcomes[i].arrived);
    }
    std::sort(turnarounds.begin(), turnarounds.end());
    worst[slices] = static_cast<double>(turnarounds[turnarounds.size() * 99 / 100]) * 1e-3;
    std::printf("short kernel, %s: p50 %.0f us, p99 %.0f us; all in %.3f s\n", slices ? "kernelet" : "mps",
                static_cast<double>(turnarounds[turnarounds.size() / 2]) * 1e-3, worst[slices], result.seconds());
  }
  EXPECT_LE(worst[1], worst[0] / 5);
}

TEST(Scenario, MeasuredPairsMakeUpForAPoorProfile) {
  for (const double noise : {0.0, 0.1}) {
    for (const Mix& mix : mixes()) {
      double seconds[2];
      World fixed(Known::kInstructionMix), learning(Known::kInstructionMix);
      const std::vector<Job> jobs = poisson_jobs(fixed.gpu, fixed.kernels, mix, 25, kLength, 5);
      const SimOptions options{.noise = noise};
      seconds[0] = fixed.run("kernelet", jobs, options).seconds();
      seconds[1] = learning.run("kernelet", jobs, options, true).seconds();
      const double opt = fixed.run("opt", jobs, options).seconds();
      std::printf("%-4s noise %2.0f %%: %.3f s by forecast, %.3f s with measured pairs, OPT %.3f s\n", mix.name,
                  100 * noise, seconds[0], seconds[1], opt);
      EXPECT_LE(seconds[1], 1.02 * seconds[0]);
      EXPECT_LE(seconds[1], 1.16 * opt);
    }
  }
}

TEST(Scenario, ForecastsOfPairs) {
  const char* const names[] = {"the static instruction mix", "and the speed at half the occupancy",
                               "and counts of instructions and bytes"};
  for (const Known known : {Known::kInstructionMix, Known::kHalf, Known::kCounts}) {
    World world(known);
    int near = 0, all = 0;
    double sum = 0;
    for (ShapeId a = 0; a < world.kernels.size(); ++a) {
      for (ShapeId b = a + 1; b < world.kernels.size(); ++b) {
        for (int resident = 2; resident <= 6; resident += 2) {
          const PairForecast truth = world.table.pair(a, resident, b, 8 - resident);
          const PairForecast got = world.model.pair(a, resident, b, 8 - resident);
          const double error = std::abs(got.throughput() / truth.throughput() - 1);
          near += error <= 0.2;
          sum += error;
          ++all;
        }
      }
    }
    std::printf("known: time, %s: %d of %d pairs within 20 %%, mean error %.1f %%\n", names[static_cast<int>(known)],
                near, all, 100 * sum / all);
    EXPECT_GE(near, all * 8 / 10);
  }
}

}  // namespace
}  // namespace bandsaw::slice
