#include "vgpu-sched/slice/persistent_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace bandsaw::slice {
namespace {

// Launches until the search is over; how many they were. `sliced`: what they take in grid slices.
int settle(PersistentTuner* tuner, const std::function<double(int)>& time, double sliced = 1e3) {
  int launches = 0;
  while (tuner->searches() && launches < 1000) {
    const int resident = tuner->next();
    tuner->observe(resident, static_cast<Time>(1e6 * (resident == PersistentTuner::kSliced ? sliced : time(resident))));
    ++launches;
  }
  return launches;
}

PersistentTuner eight() {
  PersistentTuner tuner;
  tuner.fit(8, true);
  return tuner;
}

// As on an H200: arithmetic that two blocks keep as busy as eight.
double tea(int resident) { return resident >= 3 ? 1.0 : resident == 2 ? 1.05 : 1.56; }

TEST(PersistentTuner, FewerThatAreAsFastAreKept) {
  PersistentTuner tuner = eight();
  EXPECT_EQ(tuner.next(), 8);
  EXPECT_LE(settle(&tuner, tea), 12);
  EXPECT_EQ(tuner.next(), 3);
}

TEST(PersistentTuner, FewerThatAreFasterAreKept) {
  PersistentTuner tuner = eight();
  // A stencil whose rows stay in the cache with six blocks, and not with eight.
  settle(&tuner, [](int resident) { return resident > 6 ? 1.5 : 6.0 / resident; });
  EXPECT_EQ(tuner.next(), 6);
}

TEST(PersistentTuner, AllThatFitAreKeptWhereEachCounts) {
  PersistentTuner tuner = eight();
  settle(&tuner, [](int resident) { return 8.0 / resident; });
  EXPECT_EQ(tuner.next(), 8);
}

TEST(PersistentTuner, HalfOfThemAreMeasuredInAnyCase) {
  PersistentTuner tuner = eight();
  EXPECT_EQ(tuner.half_speed(), 0);
  EXPECT_EQ(tuner.best(), 0);
  // Six are slower, so that no fewer would be tried.
  settle(&tuner, [](int resident) { return resident == 8 ? 1.0 : 4.0 / std::min(resident, 4) + 0.25; });
  EXPECT_EQ(tuner.next(), 8);
  EXPECT_NEAR(tuner.half_speed(), 1 / 1.25, 1e-6);
  EXPECT_EQ(tuner.best(), 1'000'000);
  tuner.fit(1, true);
  settle(&tuner, tea, 0.5);
  EXPECT_EQ(tuner.half_speed(), 0);
  EXPECT_EQ(tuner.best(), 500'000);
}

TEST(PersistentTuner, GridSlicesAreKeptWhereTheyAreFaster) {
  PersistentTuner tuner = eight();
  settle(&tuner, tea, 0.995);
  EXPECT_EQ(tuner.next(), 3);
  tuner = eight();
  settle(&tuner, tea, 0.95);
  EXPECT_EQ(tuner.next(), PersistentTuner::kSliced);
}

TEST(PersistentTuner, GridSlicesAreNotTriedWhereThereAreNone) {
  PersistentTuner tuner;
  tuner.fit(8, false);
  settle(&tuner, tea, 0.1);
  EXPECT_EQ(tuner.next(), 3);
}

TEST(PersistentTuner, OneThatFitsIsNoChoice) {
  PersistentTuner tuner;
  EXPECT_EQ(tuner.next(), 1);
  tuner.fit(1, false);
  EXPECT_FALSE(tuner.searches());
  tuner.observe(1, 1000);
  EXPECT_EQ(tuner.next(), 1);
  tuner.fit(0, false);
  EXPECT_EQ(tuner.next(), 1);
}

TEST(PersistentTuner, WhatItDidNotAskForTeachesNothing) {
  PersistentTuner tuner = eight();
  tuner.observe(3, 1000);
  tuner.observe(8, 0);
  tuner.observe(8, -5);
  EXPECT_EQ(tuner.next(), 8);
}

TEST(PersistentTuner, AKernelThatChangesIsSearchedAnew) {
  PersistentTuner tuner = eight();
  settle(&tuner, tea);
  for (int i = 0; i < 1000 && !tuner.searches(); ++i) tuner.observe(tuner.next(), 10'000'000);
  EXPECT_TRUE(tuner.searches());
  settle(&tuner, [](int resident) { return 80.0 / resident; });
  EXPECT_EQ(tuner.next(), 8);
}

TEST(PersistentTuner, OneThatStaysAsItIsSeldomRunsWithAll) {
  PersistentTuner tuner = eight();
  settle(&tuner, tea);
  int with_all = 0;
  for (int i = 0; i < 1000; ++i) {
    with_all += tuner.next() == 8;
    tuner.observe(tuner.next(), static_cast<Time>(1e6 * tea(tuner.next())));
  }
  EXPECT_FALSE(tuner.searches());
  EXPECT_GE(with_all, 10);
  EXPECT_LE(with_all, 20);
}

TEST(PersistentTuner, DisturbedLaunchesAreTriedAgain) {
  for (int disturbed = 0; disturbed < 6; ++disturbed) {
    PersistentTuner tuner = eight();
    int launches = 0;
    // As on an H200, beside others that were not planned yet: twice as long.
    settle(&tuner,
           [&](int resident) { return (launches++ == disturbed ? 2 : 1) * (resident > 6 ? 1.04 : 6.0 / resident); });
    EXPECT_EQ(tuner.next(), 6) << disturbed;
  }
}

TEST(PersistentTuner, ADisturbedBeginningIsFoundOut) {
  PersistentTuner tuner = eight();
  int launches = 0;
  settle(&tuner, [&](int resident) { return (launches++ < 2 ? 5 : 1) * 8.0 / resident; });
  for (int i = 0; i < 200 && !tuner.searches(); ++i) tuner.observe(tuner.next(), static_cast<Time>(8e6 / tuner.next()));
  settle(&tuner, [](int resident) { return 8.0 / resident; });
  EXPECT_EQ(tuner.next(), 8);
}

}  // namespace
}  // namespace bandsaw::slice
