#include "backend/device/soft/timing/reorder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/timing/trace_maker.h"

namespace bandsaw::soft::timing {
namespace {

using namespace test;

// What each instruction writes tells them apart.
std::vector<uint32_t> writes(const Code& code) {
  std::vector<uint32_t> found;
  for (const Instruction& one : code.instructions) found.push_back(one.writes.empty() ? 0 : one.writes[0]);
  return found;
}

using Order = std::vector<uint32_t>;

TEST(Reorder, LoadsComeFirstAndWhatWaitsForThemLast) {
  LaunchTrace launch = launch_of({load({1}, {2}), simple({2}, {3}), load({1}, {4}), simple({4}, {5}), branch(0)});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({128})});
  EXPECT_EQ(writes(reorder(launch, plain_machine())), (Order{2, 4, 3, 5, 0}));
}

TEST(Reorder, RegistersThatAreUsedAgainKeepTheirOrder) {
  LaunchTrace launch = launch_of({load({1}, {2}), simple({2}, {3}), load({1}, {2}), simple({2}, {4}), branch(0)});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({128})});
  EXPECT_EQ(writes(reorder(launch, plain_machine())), (Order{2, 3, 2, 4, 0}));
}

TEST(Reorder, AccessesAndBarriersKeepTheirOrder) {
  LaunchTrace launch =
      launch_of({load({1}, {2}), simple({2}, {3}), store({3}), barrier(), load({1}, {4}), simple({1}, {5}), branch(0)});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0}), lines({0}), lines({0})});
  const Code code = reorder(launch, plain_machine());
  std::vector<Kind> kinds;
  for (const Instruction& one : code.instructions)
    if (one.kind != Kind::kSimple) kinds.push_back(one.kind);
  EXPECT_EQ(kinds, (std::vector{Kind::kLoad, Kind::kStore, Kind::kBarrier, Kind::kLoad, Kind::kBranch}));
  EXPECT_EQ(writes(code)[1], 5u) << "there is time for it";
}

TEST(Reorder, WhereWarpsBeginNothingMovesAcross) {
  LaunchTrace launch = launch_of({simple({1}, {2}), simple({2}, {3}), load({1}, {4}), branch(0)});
  add_warp(&launch, 0, 0, {{stretch(0)}, lines({0})});
  EXPECT_EQ(writes(reorder(launch, plain_machine()))[0], 4u);
  add_warp(&launch, 0, 1, {{stretch(2)}, lines({0})});
  EXPECT_EQ(writes(reorder(launch, plain_machine())), (Order{2, 3, 4, 0}));
}

// Of any code each part has the instructions that it had, and each reads what it read.
TEST(Reorder, NothingIsLostAndNothingReadsSomethingElse) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<Instruction> code;
    for (int i = 0; i < 30; ++i) {
      const auto reg = [&] { return static_cast<uint32_t>(random() % 8); };
      Instruction one = random() % 4 == 0   ? load({reg()}, {reg()})
                        : random() % 6 == 0 ? store({reg(), reg()})
                                            : simple({reg(), reg()}, {reg()});
      one.line = static_cast<uint32_t>(i);
      code.push_back(one);
    }
    code.push_back(branch(0));
    LaunchTrace launch = launch_of(code);
    const Code after = reorder(launch, plain_machine());
    // By register the line that wrote it last, as each instruction reads it.
    const auto reads_of = [](const std::vector<Instruction>& all) {
      std::map<uint32_t, uint32_t> written;
      std::map<uint32_t, std::vector<uint32_t>> found;
      for (const Instruction& one : all) {
        for (const uint32_t reg : one.reads) found[one.line].push_back(written.contains(reg) ? written[reg] + 1 : 0);
        for (const uint32_t reg : one.writes) written[reg] = one.line;
      }
      return found;
    };
    ASSERT_EQ(after.instructions.size(), code.size());
    ASSERT_EQ(reads_of(after.instructions), reads_of(code));
  }
}

}  // namespace
}  // namespace bandsaw::soft::timing
