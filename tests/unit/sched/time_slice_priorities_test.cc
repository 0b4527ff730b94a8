// Priorities of the processes of one virtual GPU, on hardware of our own that serves processes in turns.
#include "tests/unit/sched/served_in_turns.h"

namespace bandsaw::sched {
namespace {

class TimeSlicePrioritiesTest : public TimeSliceWeightsTest {
 protected:
  Program& with_priority(int priority, VgpuId vgpu, int percent, Time busy = 0, Time pause = 0) {
    programs_.reserve(16);
    Program& program = add(vgpu, percent, busy, pause);
    program.priority = priority;
    return program;
  }
  // Steps in each second.
  double pace(const Program& program) {
    run_for(2 * kSecond);
    served(1);
    const Time before = program.steps;
    run_for(4 * kSecond);
    return static_cast<double>(program.steps - before) / 4;
  }
};

// Gdev's figure 10: a file system that encrypts a batch, waits for the disk, and so on, beside three searches.
TEST_F(TimeSlicePrioritiesTest, ShortWorkOfAHigherPriorityWaitsLittle) {
  std::vector<double> paces;
  for (const int priority : {0, 10}) {
    start_over();
    const Program& files = with_priority(priority, 1, 100, 500 * kMicrosecond, 3 * kMillisecond);
    for (int i = 0; i < 3; ++i) with_priority(0, 1, 100);
    paces.push_back(pace(files));
    const auto parts = served(4 * kSecond);
    const double searches = parts[1] + parts[2] + parts[3];
    EXPECT_GE(searches, priority == 0 ? 0.9 : 0.5) << "of the engine's time; the rest is switches";
  }
  const double alone = 1000 / 3.5;
  EXPECT_LE(paces[0] / alone, 0.2);
  EXPECT_GE(paces[1] / alone, 0.6);
}

TEST_F(TimeSlicePrioritiesTest, WhoAlwaysHasWorkHasNearlyAllOfItsVirtualGpu) {
  with_priority(3, 1, 100);
  with_priority(0, 1, 100);
  const auto parts = after(kSecond, 2 * kSecond);
  EXPECT_GE(parts[0], 0.85);
  EXPECT_GE(parts[1], 0.01) << "nobody starves";
}

TEST_F(TimeSlicePrioritiesTest, WhatTheVirtualGpuHasDoesNotChange) {
  for (const int share : {25, 50, 75}) {
    start_over();
    with_priority(5, 1, share);
    for (int i = 0; i < 3; ++i) with_priority(0, 1, share);
    with_priority(0, 2, 100 - share);
    const auto parts = after(kSecond, 4 * kSecond);
    const double low = parts[1] + parts[2] + parts[3], sum = parts[0] + low;
    EXPECT_NEAR(sum / (sum + parts[4]), share / 100.0, 0.02) << share;
    EXPECT_GE(parts[0], 0.8 * sum) << share;
  }
}

// Its work takes little of the virtual GPU's part: the others of it have the rest, as without priorities.
TEST_F(TimeSlicePrioritiesTest, WhatShortWorkLeavesIsTheOthersOfItsVirtualGpu) {
  for (const int share : {25, 50, 75}) {
    start_over();
    const Program& files = with_priority(5, 1, share, 500 * kMicrosecond, 3 * kMillisecond);
    with_priority(0, 1, share);
    with_priority(0, 1, share);
    with_priority(0, 2, 100 - share);
    EXPECT_GE(pace(files), 15);
    const auto parts = served(4 * kSecond);
    const double sum = parts[0] + parts[1] + parts[2];
    EXPECT_NEAR(sum / (sum + parts[3]), share / 100.0, 0.03) << share;
  }
}

// The same with a virtual GPU for each: it does not have to be behind first.
TEST_F(TimeSlicePrioritiesTest, ShortWorkOfAVirtualGpuOfAHigherPriorityWaitsLittleFromTheBeginning) {
  std::vector<double> first, later;
  for (const int priority : {0, 1}) {
    start_over();
    const Program& files = with_priority(0, 1, 40, 470 * kMicrosecond, 3 * kMillisecond);
    for (VgpuId vgpu = 2; vgpu <= 4; ++vgpu) with_priority(0, vgpu, 20);
    weights_.set(1, {.percent = 40, .priority = priority}, 0);
    first.push_back(progress(files, 300 * kMillisecond));
    run_for(kSecond);
    later.push_back(progress(files, kSecond));
  }
  EXPECT_LE(first[0], 0.45);
  EXPECT_GE(first[1], 0.65);
  for (const double part : later) EXPECT_GE(part, 0.7);
}

// One that asks for two thirds of the engine, and one that always has work.
TEST_F(TimeSlicePrioritiesTest, APriorityDoesNotGiveMoreThanWasPromised) {
  for (const int priority : {0, 5}) {
    start_over();
    with_priority(0, 1, 20);
    with_priority(0, 2, 60);
    with_priority(0, 3, 20, 2 * kMillisecond, kMillisecond);
    weights_.set(1, {.percent = 20, .priority = priority}, 0);
    weights_.set(3, {.percent = 20, .priority = priority}, 0);
    const auto parts = after(2 * kSecond, 4 * kSecond);
    EXPECT_NEAR(parts[0], 0.2, 0.03) << priority;
    EXPECT_NEAR(parts[1], 0.58, 0.03) << priority;
    EXPECT_NEAR(parts[2], 0.2, 0.03) << priority;
  }
}

// Its pauses are as long as those of one that is busy elsewhere. While it is away for long, time slices are long again.
TEST_F(TimeSlicePrioritiesTest, TimeSlicesAreShortOnlyWhileSomebodyGoesFirst) {
  Program& first = with_priority(1, 1, 100, 400 * kMicrosecond, 2 * kMillisecond);
  with_priority(0, 1, 100);
  with_priority(0, 1, 100);
  run_for(2 * kSecond);
  EXPECT_TRUE(weights_.orders_processes());
  EXPECT_LE(weights_.slice(1, 1), kMillisecond);
  first.pause = kSecond;
  run_for(600 * kMillisecond);
  EXPECT_FALSE(weights_.orders_processes());
  EXPECT_GE(weights_.slice(1, 1), 5 * kMillisecond);
}

TEST_F(TimeSlicePrioritiesTest, EqualPrioritiesAreNone) {
  for (const int priority : {0, 7}) {
    start_over();
    for (int i = 0; i < 3; ++i) with_priority(priority, 1, 60);
    with_priority(0, 2, 40);
    const auto parts = after(kSecond, 2 * kSecond);
    EXPECT_FALSE(weights_.orders_processes());
    EXPECT_NEAR(parts[0], parts[1], 0.01);
    EXPECT_NEAR(parts[3], 0.4, 0.02);
  }
}

// Programs come and go with any priorities, kernels of any length: nobody's time slice is nothing, and all end.
TEST_F(TimeSlicePrioritiesTest, EveryProcessGoesOnWhateverThePriorities) {
  const int priorities[] = {20, -20, 3, 3, 0, -1, 7, 20};
  for (size_t i = 0; i < std::size(priorities); ++i) {
    const Time busy = i % 3 == 0 ? 0 : static_cast<Time>(i * i) * 300 * kMicrosecond;
    with_priority(priorities[i], 1 + i % 2, 50, busy, static_cast<Time>(i) * kMillisecond);
  }
  run_for(kSecond);
  for (int round = 0; round < 5; ++round) {
    served(1);
    run_for(2 * kSecond);
    const auto parts = served(2 * kSecond);
    for (size_t i = 0; i < parts.size(); ++i) EXPECT_GT(parts[i], 0.0005) << i;
    std::rotate(programs_.begin(), programs_.begin() + 1, programs_.end());
  }
}

}  // namespace
}  // namespace bandsaw::sched
