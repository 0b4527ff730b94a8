#include "vgpu-sched/policy/credit.h"

#include <gtest/gtest.h>

#include "tests/unit/sched/desk.h"

namespace bandsaw::sched {
namespace {

TEST(Credit, WhoIsOverGoesAfterWhoIsUnder) {
  Desk desk("credit");
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  for (RequestId id = 2; id < 6; ++id) desk.ask(1, id, 0);
  for (RequestId id = 6; id < 9; ++id) desk.ask(2, id, kMs);
  desk.done(1, 1, 40 * kMs, 40 * kMs);  // 15 ms were its credit
  EXPECT_EQ(desk.goes(40 * kMs), Ids{6});
  desk.done(2, 6, 25 * kMs, 65 * kMs);  // the second period is over: 1 is at -10 ms, 2 at +5 ms
  EXPECT_EQ(desk.goes(65 * kMs), Ids{7});
  desk.done(2, 7, kMs, 66 * kMs);
  EXPECT_EQ(desk.goes(66 * kMs), Ids{8}) << "still ahead, though 1 has waited longer";
}

TEST(Credit, AForgottenDebtBreaksShares) {
  Desk desk("credit");
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.ask(1, 2, 0);
  RequestId id = 10;
  Time now = kSecond;
  desk.done(1, 1, kSecond, now);
  desk.ask(2, id, now);
  // A second's debt is cut to a period's: after a few periods both take turns, long time slices against short ones.
  Time got = 0;
  while (desk.goes(now) == Ids{id}) {
    now += kMs;
    got += kMs;
    desk.done(2, id, kMs, now);
    desk.ask(2, ++id, now);
  }
  EXPECT_LT(got, 100 * kMs);
}

TEST(Credit, WhoAsksAMomentTooLateLosesTheTurn) {
  Desk desk("credit");
  desk.add(1, {.percent = 90});
  desk.add(2, {.percent = 10});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.ask(2, 2, 0);
  desk.done(1, 1, kMs, kMs);
  EXPECT_EQ(desk.goes(kMs), Ids{2});
  EXPECT_EQ(desk.last.kind, Answer::Kind::kHold);
}

}  // namespace
}  // namespace bandsaw::sched
