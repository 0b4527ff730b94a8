// What a planner's decision costs, printed. That it solves a bounded number of chains is planner_test's to say.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/slice/workloads.h"
#include "tools/benchmarks/research/planning/make_planner.h"

namespace bandsaw::slice {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

struct Cost {
  std::vector<double> each;

  void print(const char* name) {
    std::sort(each.begin(), each.end());
    const auto at = [this](double part) {
      return each[static_cast<std::size_t>(part * static_cast<double>(each.size() - 1))];
    };
    std::printf("%-34s median %7.2f us, p99 %7.2f us, longest %7.2f us (%zu)\n", name, at(0.5), at(0.99), at(1),
                each.size());
  }
};

// 16 ready kernels of 16 shapes.
struct Ready16 {
  explicit Ready16(const SimGpu& gpu) : model(GpuModel{}) {  // not the simulated one's: what a real GPU costs
    const std::vector<SimKernel> kernels = eight_kernels();
    for (KernelId id = 0; id < 16; ++id) {
      KernelProfile profile = gpu.profile(kernels[id % 8], Known::kCounts);
      profile.block_ns *= 1 + 0.03 * static_cast<double>(id);
      ready.push_back({.id = id, .shape = model.add(profile), .blocks = 1 << 20, .left = 1 << 20, .minimum = 1056});
    }
  }
  CoRunModel model;
  std::vector<ReadyKernel> ready;
};

TEST(Cost, OfADecisionWithSixteenReadyKernels) {
  const SimGpu gpu{GpuModel{}};
  for (const char* mode : {"kernelet", "persistent-greedy", "consolidation", "slices-fifo", "random", "mps"}) {
    Cost first, later, known;
    for (int round = 0; round < 200; ++round) {
      Ready16 world(gpu);
      const auto planner = research::make_planner(mode, world.model);
      for (int i = 0; i < 40; ++i) {
        const auto begin = Clock::now();
        const Plan plan = planner->plan({.ready = world.ready}, i);
        const double took = microseconds(begin);
        EXPECT_FALSE(plan.parts.empty());
        (i == 0 ? first : i < 20 ? later : known).each.push_back(took);
      }
    }
    std::printf("%s\n", mode);
    first.print("  nothing known of the pairs");
    later.print("  some of them known");
    known.print("  all known");
  }
}

TEST(Cost, OfAChain) {
  const Demand a{.issue = 1, .delay = 20, .memory = 2};
  const Demand b{.issue = 1, .delay = 4, .memory = 0.1};
  double sum = 0;
  constexpr int kTimes = 20000;
  auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) sum += solve_two(a, 8, b, 8 - 1e-9 * i).ipc_a;
  std::printf("two kernels of 8 warps: %.2f us\n", microseconds(begin) / kTimes);
  begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) sum += solve_one(a, 16 - 1e-9 * i).ipc_a;
  std::printf("one kernel of 16 warps: %.2f us\n", microseconds(begin) / kTimes);
  EXPECT_GT(sum, 0);
}

TEST(Cost, OfAnEvent) {
  const SimGpu gpu{GpuModel{}};
  Ready16 world(gpu);
  CoScheduler scheduler(make_planner("kernelet", world.model));
  Cost arrival;
  for (KernelId id = 0; id < 16; ++id) {
    const auto begin = Clock::now();
    const Call call{.id = id, .stream = id, .shape = world.ready[id].shape, .blocks = 1 << 20, .minimum = 1056};
    EXPECT_EQ(scheduler.arrival(call, 0), Error::kNone);
    while (scheduler.next(0)) {
    }
    arrival.each.push_back(microseconds(begin));
  }
  arrival.print("an arrival, up to 16 ready");
}

}  // namespace
}  // namespace bandsaw::slice
