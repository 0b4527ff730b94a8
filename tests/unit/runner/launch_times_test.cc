// What launches take by themselves, as samples tell, and which launches are samples.
#include "backend/runner/execution/launch_times.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/unit/runner/test_clock.h"

namespace bandsaw::runner {
namespace {

using std::chrono::milliseconds;

class LaunchTimesTest : public testing::Test {
 protected:
  static LaunchId id(uint64_t shape, uint64_t exact) { return {.shape = 2 * shape, .exact = 2 * exact + 1}; }
  using Learnt = LaunchTimes::Learnt;
  static constexpr uint64_t kWithin = 100'000'000;  // beside others, in time slices that are longer than it
  Learnt sample(const LaunchId& launch, uint64_t ns, uint64_t within = kWithin) {
    times_.begin_sample(launch);
    return times_.learn(launch, ns, within);
  }
  uint64_t known(const LaunchId& launch) { return times_.find(launch, false).ns; }
  // Launched every 100 us for so long, alone or not: how many of these are samples.
  int samples_in(milliseconds time, const LaunchId& launch, bool alone) {
    int samples = 0;
    for (const auto end = clock_.now() + time; clock_.now() < end; clock_.pass(std::chrono::microseconds(100))) {
      if (!times_.find(launch, alone).sample) continue;
      ++samples;
      sample(launch, 1000);
    }
    return samples;
  }

  TestClock clock_;
  LaunchTimes times_{&clock_};
};

TEST_F(LaunchTimesTest, TheLeastOfTheSamplesIsKept) {
  const LaunchId launch = id(1, 1);
  EXPECT_EQ(times_.find(launch, false).ns, 0u);
  times_.begin_sample(launch);
  EXPECT_EQ(times_.find(launch, false).ns, 0u);
  for (const uint64_t ns : {9000, 0, 5000, 7000}) sample(launch, ns);
  EXPECT_EQ(times_.find(launch, false).ns, 5000u);
  EXPECT_EQ(times_.find(id(2, 2), false).ns, 0u);
}

TEST_F(LaunchTimesTest, OfTimesThatDifferLittleTheMeanIsTaken) {
  const LaunchId launch = id(1, 1);
  sample(launch, 8000);
  for (int i = 0; i < 50; ++i) sample(launch, 8800), sample(launch, 8400);
  EXPECT_NEAR(static_cast<double>(times_.find(launch, false).ns), 8600, 60);
  sample(launch, 5000);
  EXPECT_EQ(times_.find(launch, false).ns, 5000u);
}

TEST_F(LaunchTimesTest, AFirstSampleThatWasInterruptedForAMomentIsSoonForgotten) {
  const LaunchId launch = id(1, 1);
  for (const uint64_t ns : {9400, 8700, 9100, 8720}) sample(launch, ns);
  EXPECT_EQ(known(launch), 8700u);
}

// A single one that took little less does not make all the others too long.
TEST_F(LaunchTimesTest, TheMeanDoesNotDriftToTheLeast) {
  const LaunchId launch = id(1, 1);
  for (int i = 0; i < 200; ++i) sample(launch, i % 20 == 0 ? 8900u : i % 2 == 0 ? 9700u : 10300u);
  EXPECT_NEAR(static_cast<double>(times_.find(launch, false).ns), 9960, 200);
}

TEST_F(LaunchTimesTest, AKernelThatHasBecomeLongerIsNoticed) {
  const LaunchId launch = id(1, 1);
  sample(launch, 5000);
  for (uint32_t i = 1; i < LaunchTimes::kLonger; ++i) sample(launch, 80000 + i);
  EXPECT_EQ(times_.find(launch, false).ns, 5000u);
  sample(launch, 90000);
  EXPECT_EQ(times_.find(launch, false).ns, 80001u);
  sample(launch, 5000);
  EXPECT_EQ(times_.find(launch, false).ns, 5000u);
}

// Others' time slices may be shorter than its own.
TEST_F(LaunchTimesTest, AFirstSampleThatMayHaveBeenInterruptedIsNotBelieved) {
  sample(id(1, 1), 50'000, LaunchTimes::kAlone);
  sample(id(1, 2), 1'400'000);
  EXPECT_EQ(known(id(1, 2)), 50'000u);
  sample(id(1, 2), 48'000);
  EXPECT_EQ(known(id(1, 2)), 50'000u);
  for (const uint64_t ns : {1'500'000, 300'000, 310'000}) {
    EXPECT_EQ(known(id(1, 3)), 50'000u);
    sample(id(1, 3), ns);
  }
  EXPECT_EQ(known(id(1, 3)), 300'000u) << "it does take longer";
}

TEST_F(LaunchTimesTest, InterruptedSamplesDoNotMakeATimeLonger) {
  const LaunchId launch = id(1, 1);
  sample(launch, 5000);
  for (uint32_t i = 1; i < LaunchTimes::kLonger; ++i) sample(launch, 9000, 8000);
  EXPECT_EQ(known(launch), 5000u);
  EXPECT_EQ(known(launch), 5000u);
  EXPECT_EQ(sample(launch, 9000, 8000), Learnt::kCut) << "it fits, and was longer each time: nobody knows";
  EXPECT_EQ(known(launch), 0u);
  for (const uint64_t ns : {6700, 6000}) EXPECT_EQ(sample(launch, ns, 8000), Learnt::kNothing) << "one may be longer";
  EXPECT_EQ(sample(launch, 6400, 8000), Learnt::kKnown);
  EXPECT_EQ(known(launch), 6000u);
  sample(launch, 5000, 4000);
  EXPECT_EQ(known(launch), 5000u);
}

// A kernel of 163 ms beside others, in time slices of 10 ms.
TEST_F(LaunchTimesTest, WhatCannotFitIsKeptAndSeldomMeasuredAnew) {
  const LaunchId launch = id(1, 1);
  const uint64_t ms = 1'000'000;
  sample(launch, 163 * ms, 180 * ms);
  for (uint32_t i = 1; i < LaunchTimes::kDoubt; ++i) EXPECT_EQ(sample(launch, 320 * ms, 10 * ms), Learnt::kNothing);
  EXPECT_EQ(sample(launch, 320 * ms, 10 * ms), Learnt::kCut);
  EXPECT_EQ(known(launch), 163 * ms);
  EXPECT_EQ(sample(launch, 320 * ms, 10 * ms), Learnt::kCut);
  EXPECT_EQ(sample(launch, 163 * ms, 180 * ms), Learnt::kKnown);
  EXPECT_EQ(sample(launch, 320 * ms, 10 * ms), Learnt::kNothing);
}

// At its limit of power the GPU is faster beside a program that needs little of it.
TEST_F(LaunchTimesTest, WhatWasLearntAloneIsTheUnit) {
  const LaunchId launch = id(1, 1);
  sample(launch, 7000);
  sample(launch, 7600, LaunchTimes::kAlone);
  EXPECT_EQ(known(launch), 7600u);
  for (int i = 0; i < 100; ++i) sample(launch, 6900);
  for (int i = 0; i < 100; ++i) sample(launch, 8100);
  EXPECT_EQ(known(launch), 7600u);
  sample(launch, 5000);
  EXPECT_EQ(known(launch), 5000u) << "it does something else";
  sample(launch, 5500, LaunchTimes::kAlone);
  EXPECT_EQ(known(launch), 5500u);
  sample(launch, 5580, LaunchTimes::kAlone);
  EXPECT_EQ(known(launch), 5510u);
}

TEST_F(LaunchTimesTest, NewParametersAreTakenForTheLeastUntilTheyHaveSamples) {
  sample(id(1, 1), 5000);
  for (uint32_t i = 0; i < LaunchTimes::kEnough; ++i) sample(id(1, 2), 700000);
  EXPECT_EQ(times_.find(id(1, 2), false).ns, 700000u);
  EXPECT_EQ(times_.find(id(1, 3), false).ns, 5000u);
}

// Its first sample is from beside others, where the device is faster.
TEST_F(LaunchTimesTest, NewParametersAreTakenForWhatWasLearntAlone) {
  sample(id(1, 1), 7600, LaunchTimes::kAlone);
  sample(id(1, 2), 7000);
  EXPECT_EQ(known(id(1, 2)), 7600u);
  sample(id(1, 3), 5000);
  EXPECT_EQ(known(id(1, 3)), 5000u) << "it does something else";
  sample(id(1, 2), 7100, LaunchTimes::kAlone);
  EXPECT_EQ(known(id(1, 2)), 7100u);
}

TEST_F(LaunchTimesTest, WhatIsKnownWellIsSeldomASample) {
  const LaunchId launch = id(1, 1);
  EXPECT_EQ(samples_in(LaunchTimes::kBetween * 3, launch, true), 3);  // one each 2 ms, until enough is known
  EXPECT_EQ(samples_in(milliseconds(1000), launch, true), 10);
  EXPECT_EQ(samples_in(milliseconds(1000), launch, false), 10);
}

// A sample costs time, and alone there are gaps between launches that tell the same.
TEST_F(LaunchTimesTest, OfManyLaunchesFewAreSamplesWhereNobodyElseHasTheDevice) {
  for (const bool alone : {true, false}) {
    int samples = 0;
    for (uint64_t i = 0; i < 100; ++i) sample(id(i, i), 1000), sample(id(i, i), 1000), sample(id(i, i), 1000);
    for (uint64_t i = 0; i < 1000; ++i) samples += samples_in(milliseconds(1), id(i % 100, i % 100), alone);
    EXPECT_NEAR(samples, alone ? 10 : 95, alone ? 1 : 5);
  }
}

TEST_F(LaunchTimesTest, OfInterruptedSamplesOnlyShorterOnesTell) {
  const LaunchId launch = id(1, 1);
  EXPECT_EQ(sample(launch, 170'000, 10'000), Learnt::kCut) << "nothing is known";
  for (const uint64_t ns : {160'000, 176'000, 176'000}) sample(launch, ns);
  const uint64_t usual = known(launch);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(times_.learn(launch, 178'000, 10'000), Learnt::kNothing);
  EXPECT_EQ(known(launch), usual);
  times_.learn(launch, 158'000, 10'000);
  EXPECT_LT(known(launch), usual);
}

TEST_F(LaunchTimesTest, ParametersThatAlwaysChangeAreKnownByTheirShape) {
  EXPECT_EQ(sample(id(1, 1), 170'000, 10'000), Learnt::kCut);
  EXPECT_EQ(sample(id(1, 2), 170'000, 10'000), Learnt::kCut);
  for (const uint64_t exact : {3, 4}) EXPECT_EQ(sample(id(1, exact), 9'000, 10'000), Learnt::kNothing);
  EXPECT_EQ(sample(id(1, 5), 9'000, 10'000), Learnt::kKnown);
  EXPECT_EQ(sample(id(1, 6), 170'000, 10'000), Learnt::kNothing);
  EXPECT_EQ(sample(id(1, 7), 9'000, 10'000), Learnt::kNothing);
}

TEST_F(LaunchTimesTest, WhatIssuingTakesIsNotLearnt) {
  const LaunchId launch = id(1, 1);
  const auto loose = [&](uint64_t ns) { times_.learn(launch, ns, LaunchTimes::kAlone, false); };
  sample(launch, 0);
  loose(15'000);
  EXPECT_EQ(known(launch), 15'000u) << "nothing better is known";
  sample(launch, 5'000, LaunchTimes::kAlone);
  EXPECT_EQ(known(launch), 5'000u);
  for (int i = 0; i < 100; ++i) loose(15'000);
  EXPECT_EQ(known(launch), 5'000u);
  for (int i = 0; i < 100; ++i) loose(90'000);
  EXPECT_EQ(known(launch), 90'000u) << "it has become longer";
  sample(launch, 80'000);
  EXPECT_EQ(known(launch), 80'000u);
  for (int i = 0; i < 100; ++i) sample(launch, 300'000, 10'000), loose(90'000);
  EXPECT_EQ(known(launch), 80'000u);
}

TEST_F(LaunchTimesTest, OfLongLaunchesItDoesNotMatterWhetherTheyWaited) {
  const LaunchId launch = id(1, 1);
  sample(launch, 0);
  for (int i = 0; i < 50; ++i) times_.learn(launch, 400'000, LaunchTimes::kAlone, false);
  sample(launch, 420'000, LaunchTimes::kAlone);
  EXPECT_NEAR(static_cast<double>(known(launch)), 402'500, 500);
}

// The others' time slices came between the begin of such a sample and its launch.
TEST_F(LaunchTimesTest, BesideOthersWhatDidNotWaitIsNeverTakenForLonger) {
  const LaunchId launch = id(1, 1), unknown = id(2, 2);
  const auto late = [&](const LaunchId& which, uint64_t ns) { return times_.learn(which, ns, kWithin, false); };
  sample(launch, 5'000, LaunchTimes::kAlone);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(late(launch, 9'000'000), Learnt::kNothing);
  for (int i = 0; i < 100; ++i) late(launch, 20'000);
  EXPECT_EQ(known(launch), 5'000u);
  late(launch, 3'000);
  EXPECT_EQ(known(launch), 3'000u);
  times_.begin_sample(unknown);
  late(unknown, 9'000'000);
  EXPECT_EQ(known(unknown), 0u);
  late(unknown, 20'000);
  EXPECT_EQ(known(unknown), 20'000u) << "it can be no more";
  sample(unknown, 6'000);
  EXPECT_EQ(known(unknown), 6'000u);
}

// The first samples were beside other work, say.
TEST_F(LaunchTimesTest, WhatIsNotKnownYetIsSampledAgain) {
  const LaunchId launch = id(1, 1);
  for (uint32_t i = 0; i < LaunchTimes::kEnough; ++i) sample(launch, 0);
  EXPECT_FALSE(times_.find(launch, true).sample);
  clock_.pass(LaunchTimes::kAgain);
  EXPECT_TRUE(times_.find(launch, true).sample);
}

TEST_F(LaunchTimesTest, ParametersThatAlwaysChangeAreSampledAtLeisure) {
  sample(id(1, 1), 1000);
  int samples = 0;
  for (uint64_t i = 0; i < 10000; ++i) samples += samples_in(milliseconds(1), id(1, i), false);
  EXPECT_LE(samples, 1000 + 3);
  EXPECT_GE(samples, 900);
}

TEST_F(LaunchTimesTest, AFullTableTakesNoMoreUntilSomeAreNotLaunchedAnyMore) {
  for (uint64_t i = 1; i <= LaunchTimes::kMost / 2; ++i) sample(id(i, i), 1000 + i);
  const LaunchId late = id(1 << 20, 1 << 20);
  sample(late, 1000);
  EXPECT_EQ(times_.find(late, false).ns, 0u);
  EXPECT_EQ(times_.find(id(7, 7), false).ns, 1007u);
  clock_.pass(LaunchTimes::kForget / 2);
  (void)times_.find(id(7, 7), false);
  clock_.pass(LaunchTimes::kForget / 2);
  sample(late, 1000);
  EXPECT_EQ(times_.find(late, false).ns, 1000u);
  EXPECT_EQ(times_.find(id(7, 7), false).ns, 1007u);
  EXPECT_EQ(times_.find(id(8, 8), false).ns, 0u);
}

TEST(LaunchIdTest, AddressesDoNotCountAndAllElseDoes) {
  constexpr AddressSpan window{.base = 0x7e0000000000, .bytes = 0x10000000000};
  vgpu_launch launch{.function = 7, .stream = 1, .grid = {4, 1, 1}, .block = {128, 1, 1}};
  std::array<uint64_t, 2> parameters{window.base + 512, 40};
  const auto of = [&] { return identify(launch, std::as_bytes(std::span(parameters)), 9, 1, window); };
  const LaunchId first = of();
  parameters[0] += 4096;
  EXPECT_EQ(of().exact, first.exact);
  ++parameters[1];
  EXPECT_NE(of().exact, first.exact);
  EXPECT_EQ(of().shape, first.shape);
  --parameters[1];
  parameters[0] = window.base + window.bytes;
  EXPECT_NE(of().exact, first.exact);
  parameters[0] = window.base;
  launch.grid[2] = 2;
  EXPECT_NE(of().shape, first.shape);
  EXPECT_NE(of().exact, first.exact);
  launch.grid[2] = 1;
  EXPECT_EQ(of().shape, first.shape);
  EXPECT_EQ(of().stream, first.stream);
  EXPECT_NE(identify(launch, {}, 8, 1, window).stream, first.stream);
  EXPECT_EQ(identify(launch, std::as_bytes(std::span(parameters)).first(9), 9, 1, window).shape, first.shape);
}

}  // namespace
}  // namespace bandsaw::runner
