// Gdev's figures 10 and 14 on the simulated engine of tests/unit/sched, with production's policies.
#include <string>

#include "tests/unit/sched/simulator.h"
#include "tools/benchmarks/research/figures/figures.h"

namespace bandsaw::research {
namespace {

using namespace sched;

// Pages that a file system encrypts, a task at a time with the disk in between; searches in a database, whose tasks are
// long and always there.
constexpr sched::Time kDisk = 3 * kMillisecond;
constexpr sched::Step kEncrypts{Engine::kCompute, 900 * kMicrosecond, 1100 * kMicrosecond};
constexpr sched::Step kSearches{Engine::kCompute, 4 * kMillisecond, 6 * kMillisecond};

// Percent of what the file system gets through by itself.
double encrypted(const std::string& policy, int priority, int tenants) {
  SimulatorPlan plan{.policy = policy};
  TenantPlan files{.share = {.percent = 40, .priority = priority}, .steps = {kEncrypts}, .streams = 1, .think = kDisk};
  plan.tenants = {files};
  for (int i = 1; i < tenants; ++i) plan.tenants.push_back({.share = {.percent = 20}, .steps = {kSearches}});
  Simulator simulator(plan);
  simulator.run();
  return simulator.used(0, Engine::kCompute, kSecond, 9 * kSecond);
}

}  // namespace

FigureValues gdev_10() {
  const double alone = encrypted("band+", 0, 1);
  FigureValues values;
  for (const char* policy : {"fifo", "band", "band+"})
    values.push_back({policy, "no priority", 100 * encrypted(policy, 0, 4) / alone});
  values.push_back({"band+", "highest priority", 100 * encrypted("band+", 1, 4) / alone});
  return values;
}

FigureValues gdev_14() {
  FigureValues values;
  for (const char* policy : {"fifo", "credit", "band", "band+"}) {
    SimulatorPlan plan{.policy = policy, .end = 60 * kSecond};
    plan.tenants = {{.share = {.percent = 50}, .steps = {kShort}},
                    {.share = {.percent = 50}, .steps = {kLong}, .start = 10 * kSecond}};
    Simulator simulator(plan);
    simulator.run();
    const Errors errors = simulator.errors({50, 50}, 12 * kSecond, 60 * kSecond, kSecond);
    values.push_back({policy, "error of the share", errors.mean});
  }
  return values;
}

}  // namespace bandsaw::research
