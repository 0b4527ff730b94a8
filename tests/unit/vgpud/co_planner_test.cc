#include "backend/vgpud/arbiter/co_planner.h"

#include <gtest/gtest.h>

#include "tests/unit/vgpud/descriptors.h"
#include "tools/benchmarks/research/planning/lab_planners.h"

namespace bandsaw {
namespace {

// Arithmetic and nothing else: two such kernels gain nothing beside each other.
KernelDescriptor persistent_kernel(uint64_t call, uint64_t shape) {
  KernelDescriptor descriptor = plain_descriptor(call, shape);
  descriptor.memory = 1;
  descriptor.variant = static_cast<uint32_t>(KernelVariant::kPersistent);
  return descriptor;
}

constexpr CoPlanner::Time kMs = 1'000'000;

TEST(CoPlanner, WhoHasClaimedItsLastBlockMakesRoomForTheNext) {
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  ASSERT_TRUE(planner->ask(1, 10, persistent_kernel(1, 77), kMs));
  const auto first = planner->run(kMs);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].place, 1u);
  ASSERT_TRUE(planner->ask(2, 20, persistent_kernel(1, 78), 2 * kMs));
  EXPECT_TRUE(planner->run(2 * kMs).empty());
  planner->snapshot(1, persistent_kernel(1, 77), 3 * kMs);
  EXPECT_TRUE(planner->run(3 * kMs).empty());
  planner->snapshot(1, {}, 4 * kMs);
  const auto second = planner->run(4 * kMs);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].place, 2u);
  // It says so again, ends, and comes with its next launch.
  planner->snapshot(1, {}, 5 * kMs);
  EXPECT_TRUE(planner->run(5 * kMs).empty());
  planner->grid_slice_done(1, first[0].number, 3 * kMs, false, 5 * kMs);
  planner->snapshot(1, {}, 5 * kMs);
  EXPECT_TRUE(planner->run(5 * kMs).empty());
  ASSERT_TRUE(planner->ask(1, 10, persistent_kernel(2, 77), 6 * kMs));
  EXPECT_TRUE(planner->run(6 * kMs).empty());
  planner->grid_slice_done(2, second[0].number, 3 * kMs, false, 7 * kMs);
  planner->snapshot(2, {}, 7 * kMs);
  EXPECT_EQ(planner->run(7 * kMs).size(), 1u);
}

TEST(CoPlanner, NonsenseOfShortWorkIsNotForeseen) {
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  KernelDescriptor brief = plain_descriptor(0, 5);
  EXPECT_FALSE(planner->foresee(30, brief)) << "it does not say that it is short work";
  brief.brief = 1;
  ASSERT_TRUE(planner->foresee(30, brief));
  EXPECT_TRUE(planner->foresee(30, brief)->forecast.room);
  ASSERT_TRUE(planner->ask(1, 10, persistent_kernel(1, 77), kMs));
  ASSERT_EQ(planner->run(kMs).size(), 1u);
  EXPECT_FALSE(planner->foresee(30, brief)->forecast.room);
  EXPECT_EQ(planner->foresee(30, brief)->forecast.make_way, 1);
  EXPECT_EQ(planner->foresee(30, brief)->takes, 0) << "nobody knows what it takes alone";
  for (uint32_t KernelDescriptor::* what :
       {&KernelDescriptor::threads, &KernelDescriptor::registers, &KernelDescriptor::shared_bytes}) {
    KernelDescriptor nonsense = brief;
    nonsense.*what = ~uint32_t{0};
    EXPECT_FALSE(planner->foresee(30, nonsense));
  }
  brief.blocks = ~uint64_t{0};
  EXPECT_FALSE(planner->foresee(30, brief));
  EXPECT_EQ(planner->state().foreseen, 5u);
}

// Whoever asks for room, half of a kernel's blocks stay.
TEST(CoPlanner, HalfOfTheBlocksStay) {
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  ASSERT_TRUE(planner->ask(1, 10, persistent_kernel(1, 77), kMs));
  ASSERT_EQ(planner->run(kMs).size(), 1u);
  planner->leave_room(1'000'000, 3, 2 * kMs);
  const auto grants = planner->run(2 * kMs);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].resident, 4u);
  EXPECT_EQ(grants[0].number, 0u);
}

// Of a kernel whose runner can free single SMs, as many are asked for as the short work needs, and half stay; then all
// of them are its again.
TEST(CoPlanner, ShortWorkGetsSmsOfItsOwnFromAKernelThatCanLeaveThem) {
  PlanOptions options;
  options.take_sms = true;
  for (const bool can : {true, false}) {
    const auto planner = CoPlanner::make(PlanningMode::kKernelet, options);
    KernelDescriptor kernel = persistent_kernel(1, 77);
    kernel.leaves_sms = can ? 1 : 0;
    ASSERT_TRUE(planner->ask(1, 10, kernel, kMs));
    const auto begun = planner->run(kMs);
    ASSERT_EQ(begun.size(), 1u);
    EXPECT_EQ(begun[0].leave_sms, 0u);
    KernelDescriptor brief = plain_descriptor(0, 5);
    brief.brief = 1;
    brief.blocks = 20;  // of which eight fit on an SM
    const auto meets = planner->foresee(30, brief);
    ASSERT_TRUE(meets);
    EXPECT_EQ(meets->sms, can ? 3 : 0);
    planner->leave_room(1, meets->sms, 2 * kMs);
    const auto grants = planner->run(2 * kMs);
    ASSERT_EQ(grants.size(), 1u);
    EXPECT_EQ(grants[0].number, 0u);
    EXPECT_EQ(grants[0].leave_sms, can ? 3u : 0u);
    EXPECT_EQ(grants[0].resident, can ? begun[0].resident : 7u);
    EXPECT_EQ(planner->state().sm_requests, can ? 1u : 0u);
    planner->leave_room(1, 1000, 3 * kMs);
    const auto more = planner->run(3 * kMs);
    if (can) {
      ASSERT_EQ(more.size(), 1u);
      EXPECT_EQ(more[0].leave_sms, static_cast<uint32_t>(options.gpu.sms) / 2);
    }
    const auto over = planner->run(kMs * 1000);
    ASSERT_EQ(over.size(), 1u);
    EXPECT_EQ(over[0].leave_sms, 0u);
    EXPECT_EQ(over[0].resident, begun[0].resident);
  }
}

// A kernel that began at an open gate has no plan; beside others' kernels in one it is to be in it too.
TEST(CoPlanner, WhatNoPlanHasLeavesSmsWhereNothingIsPlanned) {
  PlanOptions options;
  options.take_sms = true;
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, options);
  KernelDescriptor open = persistent_kernel(~uint64_t{0}, 77), brief = plain_descriptor(0, 5);
  brief.brief = 1;
  brief.blocks = 20;
  EXPECT_EQ(planner->foresee(30, brief, {&open, 1})->sms, 0) << "it cannot";
  open.leaves_sms = 1;
  EXPECT_EQ(planner->foresee(30, brief, {&open, 1})->sms, 3);
  EXPECT_EQ(planner->unplanned_leave_sms(), 0u);
  planner->leave_room(1, 3, kMs);
  EXPECT_EQ(planner->unplanned_leave_sms(), 3u);
  ASSERT_TRUE(planner->ask(1, 10, persistent_kernel(1, 78), 2 * kMs));
  EXPECT_FALSE(planner->unplanned_leave_sms());
  planner->clear(3 * kMs);
  EXPECT_EQ(planner->unplanned_leave_sms(), 3u);
  (void)planner->run(kMs * 1000);
  EXPECT_EQ(planner->unplanned_leave_sms(), 0u);
}

// Two that gain by each other, as one waits and one computes.
struct Two {
  KernelDescriptor waits = persistent_kernel(1, 77), computes = persistent_kernel(1, 78);

  std::vector<CoPlanner::Grant> ask(CoPlanner* planner, CoPlanner::Time now) const {
    EXPECT_TRUE(planner->ask(1, 10, waits, now));
    EXPECT_TRUE(planner->ask(2, 20, computes, now));
    return planner->run(now);
  }
};

TEST(CoPlanner, WhoIsMeasuredRunsAlone) {
  Two two;
  two.waits.memory = kDescriptorParts / 5;
  ASSERT_EQ(two.ask(CoPlanner::make(PlanningMode::kKernelet, {}).get(), kMs).size(), 2u);
  for (const PlanningMode mode : {PlanningMode::kKernelet, PlanningMode::kPersistentGreedy, PlanningMode::kRandom}) {
    PlanOptions options;
    options.planners = research::lab_planners({});
    const auto planner = CoPlanner::make(mode, options);
    two.waits.alone = 1;
    const auto alone = two.ask(planner.get(), kMs);
    ASSERT_EQ(alone.size(), 1u) << to_text(mode);
    EXPECT_EQ(alone[0].place, 1u);
    EXPECT_EQ(alone[0].resident, 0u);
    planner->snapshot(1, {}, 2 * kMs);
    const auto next = planner->run(2 * kMs);
    ASSERT_EQ(next.size(), 1u) << to_text(mode);
    EXPECT_EQ(next[0].place, 2u);
  }
}

TEST(CoPlanner, OneThatWaitsToBeMeasuredDoesNotKeepOthersFromEachOther) {
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  Two two;
  two.waits.memory = kDescriptorParts / 5;
  EXPECT_EQ(two.ask(planner.get(), kMs).size(), 2u);
  KernelDescriptor third = persistent_kernel(1, 79);
  third.alone = 1;
  ASSERT_TRUE(planner->ask(3, 30, third, 2 * kMs));
  EXPECT_TRUE(planner->run(2 * kMs).empty());
  EXPECT_EQ(planner->state().plan.size(), 2u);
}

TEST(CoPlanner, WhatWasCountedChangesTheForecast) {
  // By their text both compute. One then proves to do little in its time, and half its blocks do half of that: it
  // waits.
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  Two two;
  EXPECT_EQ(two.ask(planner.get(), kMs).size(), 1u);
  planner->clear(2 * kMs);
  two.waits.memory = kDescriptorParts / 5;
  two.waits.instructions = 15'000;  // of the 200'000 that all schedulers could issue
  two.waits.bytes = 100'000;        // of 900'000
  two.waits.half_speed = kDescriptorParts * 11 / 20;
  EXPECT_EQ(two.ask(planner.get(), 3 * kMs).size(), 2u);
}

// What runners say of scattered accesses reaches forecasts only where these have three states.
TEST(CoPlanner, ScatteredAccessesCountWhereModelsHaveThreeStates) {
  const auto residents = [](bool three_states, uint32_t scattered) {
    PlanOptions options;
    options.model.three_states = three_states;
    const auto planner = CoPlanner::make(PlanningMode::kKernelet, options);
    Two two;
    two.waits.memory = kDescriptorParts / 10;
    two.waits.instructions = 15'000;
    two.waits.scattered = scattered;
    std::vector<uint32_t> found;
    for (const CoPlanner::Grant& grant : two.ask(planner.get(), kMs)) found.push_back(grant.resident);
    return found;
  };
  const auto plain = residents(false, 0);
  EXPECT_EQ(plain.size(), 2u);
  EXPECT_EQ(residents(false, kDescriptorParts / 2), plain);
  EXPECT_NE(residents(true, kDescriptorParts / 2), residents(true, 0));
}

TEST(CoPlanner, WhatCannotHaveBeenCountedIsRefused) {
  const auto planner = CoPlanner::make(PlanningMode::kKernelet, {});
  KernelDescriptor descriptor = persistent_kernel(1, 77);
  descriptor.instructions = uint64_t{1} << 51;
  EXPECT_FALSE(planner->ask(1, 10, descriptor, kMs));
  descriptor.instructions = 0;
  descriptor.bytes = ~uint64_t{0};
  EXPECT_FALSE(planner->ask(1, 10, descriptor, kMs));
  descriptor.bytes = 0;
  descriptor.best = 129;
  EXPECT_FALSE(planner->ask(1, 10, descriptor, kMs));
  descriptor.best = 0;
  descriptor.scattered = kDescriptorParts + 1;
  EXPECT_FALSE(planner->ask(1, 10, descriptor, kMs));
  EXPECT_EQ(planner->state().refused, 4u);
}

}  // namespace
}  // namespace bandsaw
