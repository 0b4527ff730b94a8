// What the arbiter's answer to a runner costs with sixteen ready kernels, printed for each planning mode.
#include <algorithm>
#include <chrono>

#include "tests/unit/vgpud/planned.h"

namespace bandsaw {
namespace {

constexpr PlanningMode kPlanned[] = {PlanningMode::kKernelet, PlanningMode::kPersistentGreedy, PlanningMode::kOpt,
                                     PlanningMode::kRandom};

ArbiterOptions unscheduled() {
  ArbiterOptions options;
  options.scheduled = false;
  options.policy = "fifo";
  return options;
}

TEST_F(PlannedTest, CostOfAnAskWithSixteenReadyKernels) {
  for (const PlanningMode mode : kPlanned) {
    make(mode, unscheduled());
    for (int i = 0; i < 16; ++i) {
      join(i % 8, 5, "t" + std::to_string(i));
      tenants_.back()->block_ns *= 1 + 0.02 * i;
    }
    run_for(50 * kMillisecond);
    std::vector<double> took;
    const uint64_t plans = core_->plan().plans;
    for (int i = 0; i < 2000; ++i) {
      run_for(kStep);
      PlannedTenant& tenant = *tenants_[static_cast<size_t>(i % 16)];
      const auto begin = std::chrono::steady_clock::now();
      core_->run(now_);
      set_pending(*tenant.grant_page, 0);
      core_->on_pending(tenant.name, now_);
      core_->run(now_);
      took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(took.begin(), took.end());
    std::printf("%-18s median %.2f us, p99 %.2f us, longest %.2f us; %lu plans\n", to_text(mode), took[1000],
                took[1980], took.back(), core_->plan().plans - plans);
  }
}

}  // namespace
}  // namespace bandsaw
