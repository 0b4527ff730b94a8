#include "backend/vgpud/co_planner.h"

#include <gtest/gtest.h>

#include "tests/unit/vgpud/offers.h"

namespace bandsaw {
namespace {

// Arithmetic and nothing else: two such kernels gain nothing beside each other.
OfferFacts resident_kernel(uint64_t call, uint64_t shape) {
  OfferFacts facts = plain_offer(call, shape);
  facts.memory = 1;
  facts.form = static_cast<uint32_t>(OfferForm::kResident);
  return facts;
}

constexpr CoPlanner::Time kMs = 1'000'000;

TEST(CoPlanner, WhoHasDrawnItsLastBlockMakesRoomForTheNext) {
  const auto planner = CoPlanner::make(CorunMode::kKernelet, {});
  ASSERT_TRUE(planner->ask(1, 10, resident_kernel(1, 77), kMs));
  const auto first = planner->run(kMs);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].place, 1u);
  ASSERT_TRUE(planner->ask(2, 20, resident_kernel(1, 78), 2 * kMs));
  EXPECT_TRUE(planner->run(2 * kMs).empty());
  planner->look(1, resident_kernel(1, 77), 3 * kMs);
  EXPECT_TRUE(planner->run(3 * kMs).empty());
  planner->look(1, {}, 4 * kMs);
  const auto second = planner->run(4 * kMs);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].place, 2u);
  // It says so again, ends, and comes with its next launch.
  planner->look(1, {}, 5 * kMs);
  EXPECT_TRUE(planner->run(5 * kMs).empty());
  planner->slice_done(1, first[0].number, 3 * kMs, false, 5 * kMs);
  planner->look(1, {}, 5 * kMs);
  EXPECT_TRUE(planner->run(5 * kMs).empty());
  ASSERT_TRUE(planner->ask(1, 10, resident_kernel(2, 77), 6 * kMs));
  EXPECT_TRUE(planner->run(6 * kMs).empty());
  planner->slice_done(2, second[0].number, 3 * kMs, false, 7 * kMs);
  planner->look(2, {}, 7 * kMs);
  EXPECT_EQ(planner->run(7 * kMs).size(), 1u);
}

}  // namespace
}  // namespace bandsaw
