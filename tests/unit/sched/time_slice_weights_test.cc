// The lengths of time slices, on hardware of our own that serves processes in turns, in virtual time.
#include "tests/unit/sched/served_in_turns.h"

namespace bandsaw::sched {
namespace {

TEST_F(TimeSliceWeightsTest, BusyProgramsGetTheirShares) {
  programs_.reserve(4);
  add(1, 75), add(2, 25);
  const auto parts = after(kSecond, 2 * kSecond);
  EXPECT_NEAR(parts[0], 0.75, 0.015);
  EXPECT_NEAR(parts[1], 0.25, 0.01);
  EXPECT_GE(parts[0] + parts[1], 0.98) << "long time slices: few switches";
}

TEST_F(TimeSliceWeightsTest, FourGetTheirs) {
  const int shares[] = {40, 30, 20, 10};
  programs_.reserve(4);
  for (VgpuId vgpu = 0; vgpu < 4; ++vgpu) add(vgpu, shares[vgpu]);
  const auto parts = after(kSecond, 2 * kSecond);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(parts[i], shares[i] / 100.0, 0.012) << i;
}

// Its work takes a little more than a time slice, so that of each second one it uses only a small part.
TEST_F(TimeSliceWeightsTest, WorkALittleLongerThanATimeSliceIsChargedAsItIs) {
  const int shares[] = {40, 30, 20, 10};
  const Time busy[] = {67 * kMillisecond, 163 * kMillisecond, 8760 * kMicrosecond, 33500 * kMicrosecond};
  programs_.reserve(4);
  for (VgpuId vgpu = 0; vgpu < 4; ++vgpu) add(vgpu, shares[vgpu], busy[vgpu], 20 * kMicrosecond);
  const std::vector<double> errors = errors_of_seconds(10);
  for (size_t i = 0; i < 4; ++i) EXPECT_LE(errors[i], 0.02) << i;
}

// Of 75 ms that a step takes alone it has the GPU for 72. The rest is a part of its progress.
TEST_F(TimeSliceWeightsTest, WhoPausesALittleGetsItsShareOfWhatItDoesAlone) {
  for (const int share : {50, 75, 90}) {
    start_over();
    programs_.reserve(2);
    const Program& step = add(1, share, 72 * kMillisecond, 3 * kMillisecond);
    add(2, 100 - share);
    run_for(3 * kSecond);
    const Time before = step.steps;
    served(1);
    run_for(10 * kSecond);
    const double other = served(10 * kSecond)[1];
    const double progress = static_cast<double>((step.steps - before) * 75 * kMillisecond) / (10.0 * kSecond);
    EXPECT_NEAR(progress / (progress + other), share / 100.0, 0.01);
    EXPECT_GE(progress, 0.98 * share / 100.0) << share;
    EXPECT_GE(other, 0.98 * (1 - share / 100.0)) << share;
  }
}

// As one that trains a model does, beside long kernels that are known.
TEST_F(TimeSliceWeightsTest, ProgramsWhoseKernelsAreKnownGetTheirShares) {
  for (const int share : {50, 75, 90}) {
    for (const bool knows : {true, false}) {
      start_over();
      programs_.reserve(2);
      add(1, share, 72 * kMillisecond, 3 * kMillisecond).knows = knows;
      add(2, 100 - share, 163 * kMillisecond, 100 * kMicrosecond).knows = true;
      const std::vector<double> errors = errors_of_seconds(10);
      for (size_t i = 0; i < 2; ++i) EXPECT_LE(errors[i], 0.02) << share << knows;
    }
  }
}

// Long work that comes beside other work, and was never alone.
// What its launches are thought to take one by one is a little wrong beside others.
TEST_F(TimeSliceWeightsTest, AStepThatWasMeasuredAloneIsAsMuchProgressBesideOthers) {
  for (const double beside : {0.92, 0.96, 1.04, 1.1}) {
    start_over();
    programs_.reserve(2);
    Program& step = add(1, 75, 77 * kMillisecond, kMillisecond);
    step.knows = true;
    step.beside = beside;
    add(2, 25).back_at = now_ + 2 * kSecond;
    run_for(5 * kSecond);
    served(1);
    run_for(5 * kSecond);
    EXPECT_NEAR(served(5 * kSecond)[0], 0.74, 0.01) << beside;
  }
}

// A GPU that comes from rest has a higher clock for its first steps, and beside others whenever they draw less power.
TEST_F(TimeSliceWeightsTest, TheFirstStepsAloneAreNotTheMeasureOfThoseBesideOthers) {
  programs_.reserve(2);
  Program& step = add(1, 75, 77 * kMillisecond, kMillisecond);
  step.knows = true;
  step.beside = 0.92;
  add(2, 25).back_at = now_ + 3 * kSecond;
  step.told = 0.92;
  run_for(kSecond / 2);
  step.told = 1;
  run_for(5 * kSecond);
  served(1);
  run_for(5 * kSecond);
  EXPECT_NEAR(served(5 * kSecond)[0], 0.74, 0.015);
}

TEST_F(TimeSliceWeightsTest, WhoIsNotKnownIsLearntInOneLongTimeSlice) {
  for (const int share : {10, 25, 50}) {
    start_over();
    programs_.reserve(2);
    add(1, 100 - share, 33 * kMillisecond, 200 * kMicrosecond).knows = true;
    const Program& late = add(2, share, 163 * kMillisecond, 100 * kMicrosecond);
    programs_.back().learns = true;
    run_for(8 * kSecond);
    EXPECT_TRUE(late.knows) << share;
    EXPECT_LE(weights_.slice(2), 40 * kMillisecond) << "it was for once";
    const std::vector<double> errors = errors_of_seconds(10);
    for (size_t i = 0; i < 2; ++i) EXPECT_LE(errors[i], 0.02) << share;
  }
}

TEST_F(TimeSliceWeightsTest, ProgramsThatFollowOneAnotherAreAllLearnt) {
  programs_.reserve(2);
  add(1, 50, 33 * kMillisecond, 200 * kMicrosecond).knows = true;
  Program& ever_new = add(2, 50, 163 * kMillisecond, 100 * kMicrosecond);
  ever_new.learns = true;
  for (int i = 0; i < 8; ++i) {
    run_for(4 * kSecond);
    EXPECT_TRUE(ever_new.knows) << i;
    ever_new.knows = false;
  }
}

// Who always has work fills its time slices, and is charged by these: nothing need be learnt, and nobody has to wait.
// Before that they had little work, and rested.
TEST_F(TimeSliceWeightsTest, WhoNeverRestsHasNoTimeSlicesForLearning) {
  begins_anew_ = true;
  programs_.reserve(16);
  for (VgpuId vgpu = 1; vgpu <= 16; ++vgpu) add(vgpu, 6, 30 * kMicrosecond, 20 * kMillisecond);
  run_for(100 * kMillisecond);
  for (Program& program : programs_) program.back_at = now_ + 100 * kSecond;
  const auto run_and_cut = [this](Time span) {
    for (const Time end = now_ + span; now_ < end; run_for(kMillisecond)) {
      for (Program& program : programs_) program.cut_samples += program.busy > kSecond;
    }
  };
  for (Program& program : programs_) {
    program.busy = program.left = 100 * kSecond;
    program.back_at = program.ready_since = now_;
    program.longest_wait = 0;
    run_and_cut(250 * kMillisecond);
  }
  served(1);
  run_and_cut(4 * kSecond);
  for (const double part : served(4 * kSecond)) EXPECT_NEAR(part, 0.06, 0.01);
  for (const Program& program : programs_) EXPECT_LE(program.longest_wait, 90 * kMillisecond);
}

// An encrypting file system beside searches whose kernels are cut by time slices.
TEST_F(TimeSliceWeightsTest, WhoHasLittleWorkDoesNotWaitForWhatIsLearntOfOthers) {
  programs_.reserve(4);
  const Program& files = add(1, 40, 470 * kMicrosecond, 3 * kMillisecond);
  for (VgpuId vgpu = 2; vgpu <= 4; ++vgpu) add(vgpu, 20);
  run_for(kSecond);
  const Time before = files.steps;
  for (const Time end = now_ + 10 * kSecond; now_ < end; run_for(kMillisecond)) {
    for (VgpuId vgpu = 1; vgpu < 4; ++vgpu) ++programs_[vgpu].cut_samples;
  }
  EXPECT_GE(static_cast<double>((files.steps - before) * 3470 * kMicrosecond) / (10.0 * kSecond), 0.7);
}

// Others had much time in its pause, but it has only a time slice before their next turn.
TEST_F(TimeSliceWeightsTest, OneOfManyThatComesBackHasItsPartAtOnce) {
  programs_.reserve(16);
  for (VgpuId vgpu = 1; vgpu <= 15; ++vgpu) add(vgpu, 6);
  Program& late = add(16, 6, 5 * kMillisecond, 2 * kSecond);
  while (late.steps == 0) run_for(kMillisecond);
  late.busy = late.left = 100 * kSecond;
  while (!late.has_work(now_)) run_for(kMillisecond);
  late.longest_wait = 0;
  served(1);
  run_for(300 * kMillisecond);
  EXPECT_NEAR(served(300 * kMillisecond).back(), 0.06, 0.02);
  EXPECT_LE(late.longest_wait, 100 * kMillisecond);
}

// The others all lack what switches cost. One more of them is not to be the one that pays.
TEST_F(TimeSliceWeightsTest, WhoComesToOthersHasAsMuchAsEachOfThem) {
  programs_.reserve(16);
  for (VgpuId vgpu = 1; vgpu <= 16; ++vgpu) add(vgpu, 6);
  programs_.back().back_at = now_ + 10 * kSecond;
  run_for(10 * kSecond);
  served(1);
  run_for(kSecond);
  EXPECT_GE(served(kSecond).back(), 0.055);
  EXPECT_NEAR(static_cast<double>(weights_.slice(16)), static_cast<double>(weights_.slice(1)), 0.1 * kMillisecond);
}

// Each of them changes all time slices, and the hardware begins its round anew.
TEST_F(TimeSliceWeightsTest, NewcomersOneAfterTheOtherLeaveNobodyOut) {
  begins_anew_ = true;
  programs_.reserve(16);
  for (int i = 0; i < 16; ++i) {
    Program& program = add(static_cast<VgpuId>(i + 1), 6, 30 * kMillisecond, 20 * kMicrosecond);
    program.back_at = program.ready_since = now_ + i * 20 * kMillisecond;
  }
  run_for(2 * kSecond);
  for (const Program& program : programs_) EXPECT_LE(program.longest_wait, 90 * kMillisecond) << program.vgpu;
}

// Each of its kernels is another one, say.
TEST_F(TimeSliceWeightsTest, WhoCannotBeLearntIsTriedSeldom) {
  programs_.reserve(2);
  add(1, 75, 33 * kMillisecond, 200 * kMicrosecond).knows = true;
  Program& strange = add(2, 25, 163 * kMillisecond, 100 * kMicrosecond);
  Time with_long = 0;
  for (const Time end = now_ + 20 * kSecond; now_ < end;) {
    const Time before = now_;
    run_for(kMillisecond);
    ++strange.cut_samples;
    with_long += weights_.slice(2) > 100 * kMillisecond ? now_ - before : 0;
  }
  EXPECT_GE(with_long, kSecond);
  EXPECT_LE(with_long, 3500 * kMillisecond) << "at once, and after 10 s";
}

// A kernel that uses all registers, beside one that trains: of 1.8 ms it has 1.4.
TEST_F(TimeSliceWeightsTest, WhatIsLostOfShortTimeSlicesIsMadeUpFor) {
  for (const int share : {50, 75, 90}) {
    start_over();
    programs_.reserve(2);
    add(1, share, 72 * kMillisecond, kMillisecond).lost = 300 * kMicrosecond;
    add(2, 100 - share, 163 * kMillisecond, 100 * kMicrosecond).lost = 300 * kMicrosecond;
    for (Program& program : programs_) program.knows = true;
    const std::vector<double> errors = errors_of_seconds(10);
    for (size_t i = 0; i < 2; ++i) EXPECT_LE(errors[i], 0.014) << share;
  }
}

// As one that decodes does, which is busy on the CPU for most of the time, beside one that trains.
TEST_F(TimeSliceWeightsTest, WhoHasLittleWorkNowAndThenWaitsForShortTimeSlicesOnly) {
  programs_.reserve(2);
  add(1, 75, 72 * kMillisecond, kMillisecond).knows = true;
  const Program& seldom = add(2, 25, 300 * kMicrosecond, 40 * kMillisecond);
  run_for(3 * kSecond);
  served(1);
  const Time before = seldom.steps;
  run_for(10 * kSecond);
  const auto each = static_cast<double>(10 * kSecond) / static_cast<double>(seldom.steps - before);
  EXPECT_LE(each, 41.5 * kMillisecond) << "less than 1.2 ms more than alone";
  EXPECT_GE(served(10 * kSecond)[0], 0.9);
}

// Each has one step at a time, and ends its time slices early.
TEST_F(TimeSliceWeightsTest, StepsThatAreShorterThanTimeSlicesGetTheirShares) {
  for (const int share : {25, 50, 75, 90}) {
    start_over();
    programs_.reserve(2);
    add(1, share, 7600 * kMicrosecond, 30 * kMicrosecond);
    add(2, 100 - share, 8700 * kMicrosecond, 20 * kMicrosecond);
    for (Program& program : programs_) program.knows = true;
    const std::vector<double> errors = errors_of_seconds(10);
    for (size_t i = 0; i < 2; ++i) EXPECT_LE(errors[i], 0.016) << share;
  }
}

TEST_F(TimeSliceWeightsTest, WhoseWorkIsThoughtTooShortIsLearntAllTheSame) {
  programs_.reserve(2);
  add(1, 50);
  Program& steps = add(2, 50, 30 * kMillisecond, 20 * kMicrosecond);
  steps.learns = true;
  steps.told = 0.6;
  run_for(3 * kSecond);
  EXPECT_TRUE(steps.knows);
}

// The hardware serves its first one after each change, and work that takes several time slices has what it fills.
TEST_F(TimeSliceWeightsTest, StepsOfSeveralTimeSlicesGetTheirShares) {
  begins_anew_ = true;
  for (const Time other : {7800 * kMicrosecond, 8760 * kMicrosecond, 165 * kMillisecond}) {
    for (const int share : {25, 50, 75}) {
      start_over();
      programs_.reserve(2);
      add(1, share, 75400 * kMicrosecond, 1200 * kMicrosecond);
      add(2, 100 - share, other, 100 * kMicrosecond);
      for (Program& program : programs_) program.knows = true;
      for (const double error : errors_of_seconds(8)) EXPECT_LE(error, 0.01) << other << " " << share;
    }
  }
}

// The first has one process, the second all others. What each does of what it does alone, where the driver's time
// slices of 2 ms cost many processes a switch each: the first's part of that.
double part_of_one(const std::vector<double>& parts) {
  constexpr double kManyAlone = 2.0 / 2.17;
  const double many = std::accumulate(parts.begin() + 1, parts.end(), 0.0) / kManyAlone;
  return parts[0] / (parts[0] + many);
}

// Of nine processes that have one step at a time, eight are of one virtual GPU.
TEST_F(TimeSliceWeightsTest, OneOfStepsGetsItsShareBesideEight) {
  programs_.reserve(9);
  add(1, 50, 8700 * kMicrosecond, 20 * kMicrosecond);
  for (int i = 0; i < 8; ++i) add(2, 50, 8700 * kMicrosecond, 20 * kMicrosecond);
  for (Program& program : programs_) program.knows = true;
  EXPECT_NEAR(part_of_one(after(2 * kSecond, 8 * kSecond)), 0.5, 0.01);
}

TEST_F(TimeSliceWeightsTest, ManyProcessesWithWorkAtATimeGetTheShareOfOne) {
  programs_.reserve(9);
  for (int i = 0; i < 9; ++i) add(i == 0 ? 1 : 2, 50, 8760 * kMicrosecond, 20 * kMicrosecond);
  EXPECT_NEAR(part_of_one(after(2 * kSecond, 4 * kSecond)), 0.5, 0.01);
}

TEST_F(TimeSliceWeightsTest, ManyProcessesGetTheShareOfOne) {
  programs_.reserve(9);
  add(1, 50);
  for (int i = 0; i < 8; ++i) add(2, 50);
  EXPECT_NEAR(part_of_one(after(kSecond, 2 * kSecond)), 0.5, 0.01);
}

// It loses its turn once in each step, and gets longer time slices for it.
TEST_F(TimeSliceWeightsTest, WhoWaitsForItsResultsKeepsItsShare) {
  programs_.reserve(2);
  Program& step = add(1, 75, 66 * kMillisecond, kMillisecond);
  add(2, 25);
  const auto parts = after(2 * kSecond, 4 * kSecond);
  EXPECT_GE(parts[0], 0.97 * 0.75 * 66 / 67);
  EXPECT_GE(parts[1], 0.97 * 0.25);
  EXPECT_GT(step.steps, 0);
}

// Short work takes what it can: the time slices of the others become shorter, until these have no more than their
// share.
TEST_F(TimeSliceWeightsTest, ShortWorkGetsWhatOthersWereNotPromised) {
  programs_.reserve(2);
  add(1, 75);
  Program& inference = add(2, 25, 300 * kMicrosecond, 500 * kMicrosecond);
  const auto parts = after(3 * kSecond, 3 * kSecond);
  EXPECT_GE(parts[0], 0.72);
  EXPECT_LE(parts[0], 0.85) << "the rest is given on";
  EXPECT_GE(parts[1], 0.10);
  EXPECT_LT(weights_.slice(1), 5 * kMillisecond);
  EXPECT_GT(inference.steps, 0);
}

// A process that has worked once and waits since then, as one does that is ready for the next program.
TEST_F(TimeSliceWeightsTest, WhoDoesNothingDoesNotHideThatItsNeighboursWorkIsShort) {
  programs_.reserve(3);
  add(1, 75);
  add(2, 25, 300 * kMicrosecond, 500 * kMicrosecond);
  Program& waiting = add(2, 25, 100 * kMicrosecond);
  waiting.steps = 3;
  waiting.back_at = 1000 * kSecond;
  const auto parts = after(3 * kSecond, 3 * kSecond);
  EXPECT_LE(parts[0], 0.85);
  EXPECT_GE(parts[1], 0.10);
}

// It left most of its promise to the other one, which has its own at once when the short work comes quickly again.
TEST_F(TimeSliceWeightsTest, ShortWorkDoesNotCatchUpAtTheCostOfPromises) {
  programs_.reserve(2);
  Program& step = add(1, 75, 74 * kMillisecond, 1300 * kMicrosecond);
  Program& inference = add(2, 25, 480 * kMicrosecond, 5 * kMillisecond);
  step.knows = inference.knows = true;
  run_for(4 * kSecond);
  served(1);
  inference.pause = 360 * kMicrosecond;
  run_for(2 * kSecond);
  EXPECT_GE(served(2 * kSecond)[0], 0.71);
  run_for(3 * kSecond);
  EXPECT_GE(served(3 * kSecond)[0], 0.73);
}

TEST_F(TimeSliceWeightsTest, IdleTimeIsLentAndNotOwed) {
  programs_.reserve(2);
  add(1, 50);
  add(2, 50).back_at = now_ + 2 * kSecond;
  auto parts = after(kSecond, kSecond);
  EXPECT_NEAR(parts[0], 1, 0.01);
  run_for(kMillisecond);
  served(1);
  run_for(200 * kMillisecond);
  parts = served(200 * kMillisecond);
  EXPECT_NEAR(parts[0], 0.5, 0.08) << "who comes back has its share, and not all";
}

TEST_F(TimeSliceWeightsTest, ABoundOnLatencyShortensTheOthers) {
  programs_.reserve(3);
  add(1, 60), add(2, 20);
  Program& quick = add(3, 20, 10 * kMicrosecond, 700 * kMicrosecond, kMillisecond);
  run_for(kSecond);
  quick.longest_wait = 0;
  run_for(kSecond);
  EXPECT_LE(quick.longest_wait, kMillisecond);
  quick.back_at = now_ + 10 * kSecond;
  run_for(200 * kMillisecond);
  EXPECT_LT(weights_.slice(1), kMillisecond) << "it may be back soon";
  run_for(300 * kMillisecond);
  EXPECT_GT(weights_.slice(1), 5 * kMillisecond) << "it is away: long time slices again";
}

TEST_F(TimeSliceWeightsTest, TheBoundHoldsBesideProcessesInNumbers) {
  programs_.reserve(8);
  for (int i = 0; i < 4; ++i) add(1, 80);
  Program& quick = add(2, 20, 10 * kMicrosecond, 700 * kMicrosecond, 2 * kMillisecond);
  run_for(kSecond);
  quick.longest_wait = 0;
  run_for(kSecond);
  EXPECT_LE(quick.longest_wait, 2 * kMillisecond);
}

// Without work of its own it cannot have been in the rounds of the others for so long.
TEST_F(TimeSliceWeightsTest, WhoReportsTooLittleGainsLittle) {
  programs_.reserve(2);
  add(1, 50, 120 * kMillisecond, kMillisecond).told = 0.02;
  add(2, 50);
  run_for(2 * kSecond);
  served(1);
  const Time before = weights_.used(1);
  run_for(4 * kSecond);
  const auto parts = served(4 * kSecond);
  EXPECT_GE(parts[1], 0.39) << "the honest one";
  const double charged = static_cast<double>(weights_.used(1) - before) / (4.0 * kSecond);
  EXPECT_GE(charged, 0.75 * parts[0]);
}

TEST_F(TimeSliceWeightsTest, WhatABoundCostsIsWhatTheMoreSwitchesTake) {
  const auto lost = [&](Time latency) {
    start_over();
    programs_.reserve(3);
    add(1, 60), add(2, 30);
    add(3, 10, 10 * kMicrosecond, 700 * kMicrosecond, latency);
    run_for(kSecond);
    served(1);
    const Time before = weights_.latency_cost(3);
    run_for(2 * kSecond);
    double all = 0;
    for (const double part : served(2 * kSecond)) all += part;
    const double cost = static_cast<double>(weights_.latency_cost(3) - before) / (2.0 * kSecond);
    return std::pair(1 - all, cost);
  };
  const auto [lost_without, no_cost] = lost(0);
  EXPECT_EQ(no_cost, 0);
  const auto [lost_with, cost] = lost(2 * kMillisecond);
  EXPECT_GT(lost_with, lost_without + 0.02);
  EXPECT_GT(cost, 0.3 * (lost_with - lost_without));
  EXPECT_LT(cost, 2 * (lost_with - lost_without));
  EXPECT_EQ(weights_.latency_cost(1), 0) << "it has no bound";
}

TEST_F(TimeSliceWeightsTest, ACapRunsOutOfTokens) {
  programs_.reserve(1);
  add(1, 20);
  weights_.set(1, {.percent = 20, .cap = 20}, 0);
  run_for(500 * kMillisecond);  // this hardware does not stop it
  EXPECT_FALSE(weights_.may_run(1));
  programs_[0].back_at = now_ + 10 * kSecond;
  run_for(kSecond);
  EXPECT_FALSE(weights_.may_run(1)) << "it has had 0.5 s, and 1.5 s at a fifth are 0.3 s";
  run_for(2 * kSecond);
  EXPECT_TRUE(weights_.may_run(1));
}

TEST_F(TimeSliceWeightsTest, LoadsOfUnknownOnesAreIgnored) {
  weights_.set(1, {.percent = 100}, 0);
  const TimeSliceWeights::Load loads[] = {{.vgpu = 7, .busy = true}, {.vgpu = 1, .measured = -kSecond}};
  weights_.advance(kSecond, loads);
  weights_.advance(2 * kSecond, loads);
  EXPECT_EQ(weights_.used(1), 0);
  EXPECT_EQ(weights_.used(7), 0);
  EXPECT_EQ(weights_.active(), 0);
}

// It is served in the other's pauses alone, and once in each.
TEST_F(TimeSliceWeightsTest, WhoFillsWhatAnotherLeavesIsNotChargedForTurnsThatItNeverHad) {
  programs_.reserve(2);
  Program& fills = add(1, 10, 10 * kMillisecond, 100 * kMicrosecond);
  Program& pauses = add(2, 90, 12 * kMillisecond, kMillisecond);
  fills.knows = pauses.knows = true;
  run_for(8 * kSecond);
  EXPECT_GE(progress(fills, 8 * kSecond), 0.095);
  EXPECT_GE(progress(pauses, 8 * kSecond), 0.88);
}

}  // namespace
}  // namespace bandsaw::sched
