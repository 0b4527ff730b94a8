#include "backend/device/soft/timing/program_points.h"

#include <gtest/gtest.h>

#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

// 0 simple, 1 load, 2 simple, 3 simple, 4 branch to 1, 5 simple: the loop's load is 4 instructions behind its branch.
Code loop() {
  return launch_of({simple({}, {}), load({}, {}), simple({}, {}), simple({}, {}), branch(1), simple({}, {})}).code;
}

TEST(ProgramPoints, DistancesGoToTheNextLoadAlsoByALoop) {
  const ProgramPoints points(loop());
  ASSERT_EQ(points.points().size(), 2u);
  EXPECT_TRUE(points.points()[1].branch);
  EXPECT_EQ(points.points()[1].score, 1u);  // the branch itself, then the load at its target
  EXPECT_EQ(points.distance(0), 1u);
  EXPECT_EQ(points.distance(1), 0u);
  EXPECT_EQ(points.distance(2), 3u);
  EXPECT_EQ(points.distance(4), 1u);
  EXPECT_EQ(points.distance(5), kMostScore);
}

TEST(ProgramPoints, ABranchBackwardsWithoutALoadBehindItIsNone) {
  const ProgramPoints points(launch_of({load({}, {}), simple({}, {}), branch(1), simple({}, {})}).code);
  ASSERT_EQ(points.points().size(), 1u);
  EXPECT_EQ(points.distance(1), kMostScore);
}

TEST(ProgramPoints, TheNearestAreMergedWhereSlotsAreFew) {
  // Loads at 0, 5 and 7: the last two are nearest.
  std::vector<Instruction> code(8, simple({}, {}));
  for (const size_t at : {0, 5, 7}) code[at] = load({}, {});
  const ProgramPoints points(launch_of(code).code, 2);
  EXPECT_EQ(points.found(), 3u);
  ASSERT_EQ(points.points().size(), 2u);
  EXPECT_EQ(points.points()[1].counter, 7u);
  EXPECT_EQ(points.points()[1].score, 2u);
  EXPECT_EQ(points.distance(1), 4u);  // as if the load at 5 were known
  EXPECT_EQ(points.distance(6), 1u);
}

TEST(ProgramPoints, ScoresHaveEightBits) {
  std::vector<Instruction> code(400, simple({}, {}));
  code.back() = load({}, {});
  const ProgramPoints points(launch_of(code).code);
  EXPECT_EQ(points.distance(0), kMostScore);
  EXPECT_EQ(points.distance(399 - 254), 254u);
}

TEST(ProgramPoints, ALookUpIsNeededBehindLoadsAndWhereABranchChangesTheDistance) {
  const ProgramPoints points(loop());
  EXPECT_FALSE(points.changes(0, 1));
  EXPECT_TRUE(points.changes(1, 2));
  EXPECT_FALSE(points.changes(2, 3));
  EXPECT_FALSE(points.changes(4, 1));  // taken, as its score says
  EXPECT_TRUE(points.changes(4, 5));
}

}  // namespace
}  // namespace bandsaw::soft::timing
