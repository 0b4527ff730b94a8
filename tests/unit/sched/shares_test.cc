// What BAND+ promises, beside the plain share: many tenants, bursts, caps, reservations, changes, engines apart.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/unit/sched/simulator.h"

namespace bandsaw::sched {
namespace {

void print(const char* name, const std::string& policy, const Errors& second, const Errors& tenth, double total) {
  std::printf("%-28s %-6s  1 s: %5.2f (max %5.2f)  100 ms: %5.2f (max %5.2f)  total %5.1f\n", name, policy.c_str(),
              second.mean, second.max, tenth.mean, tenth.max, total);
}

// `count` equal tenants, one more each half second.
void equals(int count, const std::string& policy, double bound) {
  const Time start = count * kSecond / 2;
  SimulatorPlan plan{.policy = policy, .end = start + 20 * kSecond};
  for (int i = 0; i < count; ++i) {
    plan.tenants.push_back({.share = {.percent = 100 / count}, .steps = {kShort}, .start = i * kSecond / 2});
  }
  Simulator simulator(plan);
  simulator.run();
  const std::vector<double> targets(count, 100.0 / count);
  const Errors second = simulator.errors(targets, start, plan.end, kSecond);
  const double total = simulator.utilisation(Engine::kCompute, start, plan.end);
  print((std::to_string(count) + " equal").c_str(), policy, second,
        simulator.errors(targets, start, plan.end, kSecond / 10), total);
  EXPECT_LE(second.mean, bound);
  EXPECT_GE(total, 97);
  Time longest = 0;
  for (int i = 0; i < count; ++i) longest = std::max(longest, simulator.longest_wait(i));
  std::printf("  longest wait %.1f ms\n", static_cast<double>(longest) / kMillisecond);
  if (policy == "band+") {
    EXPECT_LE(longest, 100 * kMillisecond);
  }
}

TEST(Shares, FourEqualTenants) {
  equals(4, "band", 10);
  equals(4, "band+", 1);
}

TEST(Shares, SixteenEqualTenants) {
  equals(16, "band", 10);
  equals(16, "band+", 1);
}

TEST(Shares, ThreeUnequalTenantsOfUnequalTasks) {
  for (const std::string policy : {"fifo", "credit", "band", "band+"}) {
    SimulatorPlan plan{.policy = policy, .end = 20 * kSecond};
    plan.tenants = {{.share = {.percent = 50}, .steps = {kShort}},
                    {.share = {.percent = 30}, .steps = {{Engine::kCompute, 5 * kMillisecond, 10 * kMillisecond}}},
                    {.share = {.percent = 20}, .steps = {kLong}}};
    Simulator simulator(plan);
    simulator.run();
    const Errors second = simulator.errors({50, 30, 20}, kSecond, plan.end, kSecond);
    const double total = simulator.utilisation(Engine::kCompute, kSecond, plan.end);
    print("50:30:20", policy, second, simulator.errors({50, 30, 20}, kSecond, plan.end, kSecond / 10), total);
    if (policy == "band+") {
      EXPECT_LE(second.mean, 2);
    }
    if (policy == "band+") {
      EXPECT_GE(total, 97);
    }
    if (policy == "fifo") {
      EXPECT_GE(second.mean, 10);
    }
  }
}

// The first run of `vgpu` at or after `time`.
Time first_begin(const Simulator& simulator, VgpuId vgpu, Time time) {
  for (const Run& run : simulator.runs) {
    if (run.vgpu == vgpu && run.begin >= time) return run.begin;
  }
  return -1;
}

void idle_half(const Step& bursty_step, const Step& other_step) {
  constexpr Time kCycle = 400 * kMillisecond;
  SimulatorPlan plan{.end = 20 * kSecond};
  plan.tenants = {{.share = {.percent = 50}, .steps = {bursty_step}, .on = kCycle / 2, .off = kCycle / 2},
                  {.share = {.percent = 50}, .steps = {other_step}}};
  Simulator simulator(plan);
  simulator.run();
  Time back = 0;
  Time lent = 0;
  for (Time cycle = kCycle; cycle + kCycle < plan.end; cycle += kCycle) {
    back = std::max(back, first_begin(simulator, 0, cycle) - cycle);
    Time last = 0;
    for (const Run& run : simulator.runs) {
      if (run.vgpu == 0 && run.begin < cycle + kCycle * 3 / 4 && run.begin >= cycle) last = std::max(last, run.end);
    }
    lent = std::max(lent, first_begin(simulator, 1, last) - last);
  }
  const double total = simulator.utilisation(Engine::kCompute, 0, plan.end);
  std::printf("idle half of the time: back within %.2f ms, lent within %.3f ms, %4.1f/%4.1f, total %.1f\n", back / 1e6,
              lent / 1e6, simulator.used(0, Engine::kCompute, 0, plan.end),
              simulator.used(1, Engine::kCompute, 0, plan.end), total);
  // A time slice, and what was left of the one before it: `ahead`, or more if that one is longer than they usually are.
  const Time longer = (other_step.longest - other_step.shortest) / 2;
  EXPECT_LE(back, other_step.longest + 10 * kMicrosecond + PolicyOptions{}.ahead + longer);
  EXPECT_LE(lent, PolicyOptions{}.wait + 10 * kMicrosecond);
  EXPECT_GE(total, 97);
}

TEST(Shares, AnIdleNeighboursShareIsLentAndReturned) {
  idle_half(kShort, kShort);
  idle_half(kShort, kLong);
}

TEST(Shares, CapIsAHardMaximum) {
  for (const int neighbours : {0, 1}) {
    SimulatorPlan plan{.end = 20 * kSecond};
    plan.tenants = {{.share = {.percent = 50, .cap = 30}, .steps = {kShort}}};
    if (neighbours > 0) plan.tenants.push_back({.share = {.percent = 50}, .steps = {kLong}});
    Simulator simulator(plan);
    simulator.run();
    double most = 0;
    for (Time at = kSecond; at < plan.end; at += kSecond) {
      most = std::max(most, simulator.used(0, Engine::kCompute, at, at + kSecond));
    }
    const double mean = simulator.used(0, Engine::kCompute, kSecond, plan.end);
    const double total = simulator.utilisation(Engine::kCompute, kSecond, plan.end);
    std::printf("cap 30, %d neighbours: mean %.2f, most in 1 s %.2f, total %.1f\n", neighbours, mean, most, total);
    EXPECT_LE(most, 31);
    EXPECT_GE(mean, 28);
    if (neighbours > 0) {
      EXPECT_GE(total, 97);
    }
  }
}

TEST(Shares, ReservationIsAGuaranteedMinimum) {
  for (const int streams : {1, 4}) {
    SimulatorPlan plan{.end = 20 * kSecond};
    // By its weight it would have a tenth; it waits for each task and thinks longer than anybody would wait for.
    plan.tenants = {{.share = {.percent = 10, .reservation = 40},
                     .steps = {kShort},
                     .streams = streams,
                     .think = 100 * kMicrosecond},
                    {.share = {.percent = 90}, .steps = {kLong}}};
    Simulator simulator(plan);
    simulator.run();
    double least = 100;
    for (Time at = kSecond; at < plan.end; at += kSecond) {
      least = std::min(least, simulator.used(0, Engine::kCompute, at, at + kSecond));
    }
    const double mean = simulator.used(0, Engine::kCompute, kSecond, plan.end);
    std::printf("reservation 40, %d streams: mean %.2f, least in 1 s %.2f, total %.1f\n", streams, mean, least,
                simulator.utilisation(Engine::kCompute, kSecond, plan.end));
    EXPECT_GE(mean, streams > 1 ? 39.5 : 38);
    EXPECT_GE(least, 36);
  }
}

TEST(Shares, AChangeIsInForceWithin100Ms) {
  for (const Step& step : {kShort, kLong}) {
    SimulatorPlan plan{.end = 10 * kSecond};
    plan.tenants = {{.share = {.percent = 20}, .steps = {kShort}}, {.share = {.percent = 80}, .steps = {step}}};
    const auto set = [](int first, int second) {
      return [=](Scheduler& scheduler, Time now) {
        const bool shrinks = first < 50;
        for (const VgpuId vgpu : {shrinks ? 0u : 1u, shrinks ? 1u : 0u}) {
          const Error error = scheduler.set_share(vgpu, Engine::kCompute, {.percent = vgpu == 0 ? first : second}, now);
          EXPECT_EQ(error, Error::kNone);
        }
      };
    };
    plan.changes = {{4 * kSecond, set(70, 30)}};
    Simulator simulator(plan);
    simulator.run();
    const Errors before = simulator.errors({20, 80}, kSecond, 4 * kSecond, kSecond);
    const Time changed = 4 * kSecond + kSecond / 10;
    const Errors after = simulator.errors({70, 30}, changed, changed + 5 * kSecond, kSecond);
    const double at_once = simulator.used(0, Engine::kCompute, changed, changed + 200 * kMillisecond);
    std::printf("changed 20:80 to 70:30: before %.2f, after 100 ms %.2f (max %.2f), first 200 ms %.1f\n", before.mean,
                after.mean, after.max, at_once);
    EXPECT_LE(before.mean, 2);
    EXPECT_LE(after.mean, 2);
    EXPECT_NEAR(at_once, 70, step.longest > 10 * kMillisecond ? 20 : 3);
  }
}

TEST(Shares, EnginesApartAreUsedAtOnce) {
  double total[2];
  for (const auto model : {QueueModel::kSdq, QueueModel::kMrq}) {
    SimulatorPlan plan{.model = model, .end = 20 * kSecond};
    const Step copy_little{Engine::kCopyIn, 200 * kMicrosecond, 600 * kMicrosecond};
    const Step copy_much{Engine::kCopyIn, 2 * kMillisecond, 4 * kMillisecond};
    const Step compute_much{Engine::kCompute, 2 * kMillisecond, 4 * kMillisecond};
    const Step compute_little{Engine::kCompute, 200 * kMicrosecond, 600 * kMicrosecond};
    plan.tenants = {{.share = {.percent = 50}, .steps = {copy_little, compute_much}},
                    {.share = {.percent = 50}, .steps = {copy_much, compute_little}}};
    Simulator simulator(plan);
    simulator.run();
    double& sum = total[static_cast<int>(model)];
    sum = simulator.utilisation(Engine::kCompute, kSecond, plan.end) +
          simulator.utilisation(Engine::kCopyIn, kSecond, plan.end);
    std::printf("%s: compute %4.1f/%4.1f copy-in %4.1f/%4.1f, sum %.1f\n", model == QueueModel::kSdq ? "SDQ" : "MRQ",
                simulator.used(0, Engine::kCompute, kSecond, plan.end),
                simulator.used(1, Engine::kCompute, kSecond, plan.end),
                simulator.used(0, Engine::kCopyIn, kSecond, plan.end),
                simulator.used(1, Engine::kCopyIn, kSecond, plan.end), sum);
  }
  EXPECT_LE(total[0], 100);
  EXPECT_GT(total[1], 130);
}

}  // namespace
}  // namespace bandsaw::sched
