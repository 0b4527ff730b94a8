#include "vgpu-sched/policy/band.h"

#include <gtest/gtest.h>

#include "tests/unit/sched/desk.h"

namespace bandsaw::sched {
namespace {

// 2 has run for long, 1 comes and runs a time slice, 2 has another one waiting.
struct BandTest : ::testing::Test {
  void SetUp() override {
    desk.add(1, {.percent = 50});
    desk.add(2, {.percent = 50});
    desk.ask(2, 20, 0);
    EXPECT_EQ(desk.goes(0), Ids{20});
    desk.ask(2, 21, 0);
    desk.ask(1, 10, kMs);
    desk.done(2, 20, 250 * kMs, 250 * kMs);
    EXPECT_EQ(desk.goes(250 * kMs), Ids{10});
    desk.done(1, 10, kMs, now);
  }

  Desk desk{"band"};
  Time now = 251 * kMs;
};

TEST_F(BandTest, KeepsTheEngineForAShortWhile) {
  EXPECT_EQ(desk.goes(now), Ids{});
  EXPECT_EQ(desk.last.kind, Answer::Kind::kWait);
  EXPECT_EQ(desk.last.until, now + 500 * kMicrosecond);
  desk.ask(1, 11, now + 499 * kMicrosecond);
  EXPECT_EQ(desk.goes(now + 499 * kMicrosecond), Ids{11});
}

TEST_F(BandTest, ServesTheNextOneWhenNobodyComes) {
  EXPECT_EQ(desk.goes(now), Ids{});
  EXPECT_EQ(desk.goes(now + 500 * kMicrosecond), Ids{21});
}

TEST_F(BandTest, DoesNotWaitForOneWithinItsBandwidth) {
  now += kSecond;  // what 2 used is long ago
  EXPECT_EQ(desk.goes(now), Ids{21});
}

TEST(Band, LowersOnlyWhoExceedsBudgetAndBandwidth) {
  Desk desk("band");
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  desk.ask(1, 2, 0);
  desk.ask(1, 3, 0);
  desk.ask(2, 9, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.done(1, 1, 100 * kMs, 100 * kMs);  // far over the budget, but 100 ms of 300 ms is not over half
  EXPECT_EQ(desk.goes(100 * kMs), Ids{2});
  desk.done(1, 2, 200 * kMs, 300 * kMs);
  EXPECT_EQ(desk.goes(300 * kMs), Ids{9});
}

TEST(Band, TakesPeriodAndWaitFromTheOptions) {
  Desk desk("band", {.model = QueueModel::kMrq, .depth = 1}, {.wait = 70, .memory = 1000});
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.ask(2, 2, 0);
  desk.ask(2, 3, 0);
  desk.done(1, 1, 900, 900);
  EXPECT_EQ(desk.goes(900), Ids{2});
  desk.ask(1, 4, 910);
  desk.done(2, 2, 900, 1800);
  EXPECT_EQ(desk.goes(1800), Ids{4});
  desk.done(1, 4, 1, 1801);
  EXPECT_EQ(desk.goes(1801), Ids{});
  EXPECT_EQ(desk.last.until, 1871);
}

}  // namespace
}  // namespace bandsaw::sched
