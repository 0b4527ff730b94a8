// Two to four programs, drawn from very different ones, in virtual time: each makes the progress that it was
// promised.
#include <random>
#include <string>

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
    served(1);
    constexpr Time kSpan = 6 * kSecond;
    run_for(kSpan);
    const std::vector<double> parts = served(kSpan);
    double worst = 1;
    said_.clear();
    for (size_t i = 0; i < programs_.size(); ++i) {
      const auto alone = static_cast<double>(kinds[i].alone()) / static_cast<double>(programs_[i].busy);
      const double part = parts[i] * alone / (shares_[programs_[i].vgpu] / 100.0);
      worst = std::min(worst, part);
      said_ += std::to_string(kinds[i].busy) + "+" + std::to_string(kinds[i].pause) + " us of " +
               std::to_string(shares_[programs_[i].vgpu]) + " %: " + std::to_string(part) + "; ";
    }
    return worst;
  }

  std::string said_;  // of the last mix
};

TEST_F(TimeSliceMixesTest, AllMakeTheProgressThatTheyWerePromised) {
  std::minstd_rand random(1);
  double sum = 0;
  int mixes = 0;
  for (const int count : {2, 3, 4}) {
    for (int round = 0; round < 20; ++round, ++mixes) {
      const double worst = least(random, count, round % 2 == 0);
      EXPECT_GE(worst, 0.91) << said_;
      sum += worst;
    }
  }
  EXPECT_GE(sum / mixes, 0.975);
}

}  // namespace
}  // namespace bandsaw::sched
