// Two to four programs, drawn from very different ones, in virtual time: each makes the progress that it was
// promised.
#include <random>

#include "tests/unit/sched/served_in_turns.h"

namespace bandsaw::sched {
namespace {

struct Kind {
  Time busy = 0, pause = 0;  // us
  Time alone() const { return kMicrosecond * (busy + pause); }
};

constexpr Kind kKinds[] = {{68, 8},      {500, 30},    {1000, 60},    {1000, 300}, {4600, 150},  {7000, 250},
                           {10000, 100}, {20000, 300}, {74000, 1300}, {500, 1000}, {165000, 100}};

class TimeSliceMixesTest : public TimeSliceWeightsTest {
 protected:
  // Of all programs of a mix the least part of what it was promised.
  double least(std::minstd_rand& random, int count, bool knows) {
    start_over();
    programs_.reserve(4);
    std::vector<Kind> kinds;
    int left = 100;
    for (int i = 0; i < count; ++i) {
      const int most = std::max(1, left - 10 * (count - i));
      const int share = i == count - 1 ? left : 5 + static_cast<int>(random() % static_cast<unsigned>(most));
      left -= share;
      const Kind& kind = kinds.emplace_back(kKinds[random() % std::size(kKinds)]);
      Program& program = add(static_cast<VgpuId>(i + 1), share, kind.busy * kMicrosecond, kind.pause * kMicrosecond);
      program.knows = knows;
      program.learns = true;
      program.lost = 60 * kMicrosecond;
    }
    run_for(8 * kSecond);
    std::vector<Time> before;
    for (const Program& program : programs_) before.push_back(program.steps);
    constexpr Time kSpan = 6 * kSecond;
    run_for(kSpan);
    double worst = 1;
    for (size_t i = 0; i < programs_.size(); ++i) {
      const auto done = static_cast<double>((programs_[i].steps - before[i]) * kinds[i].alone());
      worst = std::min(worst, done / static_cast<double>(kSpan) / (shares_[programs_[i].vgpu] / 100.0));
    }
    return worst;
  }
};

// Work of a sixth of a second is counted in whole steps, and with little of the GPU they are few.
TEST_F(TimeSliceMixesTest, AllMakeTheProgressThatTheyWerePromised) {
  std::minstd_rand random(1);
  double sum = 0;
  int mixes = 0;
  for (const int count : {2, 3, 4}) {
    for (int round = 0; round < 20; ++round, ++mixes) {
      const double worst = least(random, count, round % 2 == 0);
      EXPECT_GE(worst, 0.88) << count << " programs, round " << round;
      sum += worst;
    }
  }
  EXPECT_GE(sum / mixes, 0.965);
}

}  // namespace
}  // namespace bandsaw::sched
