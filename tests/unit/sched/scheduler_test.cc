#include "vgpu-sched/policy/scheduler.h"

#include <gtest/gtest.h>

#include "tests/unit/sched/desk.h"

namespace bandsaw::sched {
namespace {

TEST(Scheduler, RefusesSharesThatMakeNoSense) {
  Desk desk("band+");
  for (const Share& share :
       {Share{.percent = 0}, Share{.percent = -5}, Share{.percent = 101}, Share{.percent = 10, .reservation = -1},
        Share{.percent = 10, .reservation = 101}, Share{.percent = 10, .cap = 0}, Share{.percent = 10, .cap = 101},
        Share{.percent = 10, .reservation = 50, .cap = 40}}) {
    EXPECT_EQ(desk.scheduler.add(1, share, 0), Error::kBadShare);
  }
  EXPECT_EQ(desk.scheduler.tenant(1, kCompute), nullptr);
  EXPECT_FALSE(describe(Error::kBadShare).empty());
}

TEST(Scheduler, RefusesMoreThanTheGpu) {
  Desk desk("band+");
  desk.add(1, {.percent = 60, .reservation = 50});
  EXPECT_EQ(desk.scheduler.add(2, {.percent = 41}, 0), Error::kOversubscribed);
  EXPECT_EQ(desk.scheduler.add(2, {.percent = 40, .reservation = 51}, 0), Error::kOversubscribed);
  desk.add(2, {.percent = 40, .reservation = 50});
  EXPECT_EQ(desk.scheduler.set_share(2, kCompute, {.percent = 41}, 0), Error::kOversubscribed);
  EXPECT_EQ(desk.scheduler.tenant(2, kCompute)->share.percent, 40);
  EXPECT_EQ(desk.scheduler.set_share(1, kCompute, {.percent = 59}, 0), Error::kNone);
  EXPECT_EQ(desk.scheduler.set_share(2, kCompute, {.percent = 41}, 0), Error::kNone);
  EXPECT_EQ(desk.scheduler.tenant(2, Engine::kCopyIn)->share.percent, 40);
  ASSERT_EQ(desk.scheduler.remove(1, 0), Error::kNone);
  EXPECT_EQ(desk.scheduler.set_share(2, kCompute, {.percent = 100}, 0), Error::kNone);
}

TEST(Scheduler, RefusesWhatIsNotThereOrThereTwice) {
  Desk desk("fifo");
  desk.add(1, {.percent = 50});
  EXPECT_EQ(desk.scheduler.add(1, {.percent = 10}, 0), Error::kKnownVgpu);
  EXPECT_EQ(desk.scheduler.remove(2, 0), Error::kUnknownVgpu);
  EXPECT_EQ(desk.scheduler.set_paused(2, true, 0), Error::kUnknownVgpu);
  EXPECT_EQ(desk.scheduler.set_share(2, kCompute, {.percent = 1}, 0), Error::kUnknownVgpu);
  EXPECT_EQ(desk.scheduler.arrival({.id = 1, .vgpu = 2}, 0), Error::kUnknownVgpu);
  EXPECT_EQ(desk.scheduler.completion(1, kCompute, 7, 1, 0), Error::kUnknownRequest);
  EXPECT_EQ(desk.scheduler.arrival({.id = 1, .vgpu = 1, .engine = kCompute, .estimate = -1}, 0), Error::kBadTime);
  desk.ask(1, 7, 0);
  EXPECT_EQ(desk.scheduler.arrival({.id = 7, .vgpu = 1}, 0), Error::kKnownRequest);
  EXPECT_EQ(desk.scheduler.completion(1, kCompute, 7, 1, 0), Error::kUnknownRequest);  // not in flight yet
  EXPECT_EQ(desk.goes(0), Ids{7});
  EXPECT_EQ(desk.scheduler.arrival({.id = 7, .vgpu = 1}, 0), Error::kKnownRequest);
  EXPECT_EQ(desk.scheduler.completion(1, kCompute, 7, -1, 0), Error::kBadTime);
  EXPECT_EQ(desk.scheduler.completion(1, kCompute, 7, kLongest + 1, 0), Error::kBadTime);
  EXPECT_EQ(desk.scheduler.cancel(1, kCompute, 7, 0), Error::kUnknownRequest);  // no longer waiting
  desk.done(1, 7, kMs, kMs);
  EXPECT_EQ(desk.scheduler.completion(1, kCompute, 7, 1, 0), Error::kUnknownRequest);
}

class EveryPolicy : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::Values("fifo", "credit", "band", "band+"),
                         [](const auto& param) {
                           return param.param == std::string("band+") ? "BandPlus" : param.param;
                         });

TEST_P(EveryPolicy, BoundsWhatIsInFlight) {
  Desk desk(GetParam(), {.model = QueueModel::kMrq, .depth = 3});
  desk.add(1, {.percent = 50});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.done(1, 1, 1000, 1000);  // short ones, as is known now
  for (RequestId id = 2; id <= 9; ++id) desk.ask(1, id, 1000);
  EXPECT_EQ(desk.goes(1000), (Ids{2, 3, 4}));
  EXPECT_EQ(desk.goes(1500), Ids{});
  desk.done(1, 2, 1000, 2000);
  EXPECT_EQ(desk.goes(2000), Ids{5});
}

TEST_P(EveryPolicy, ServesOneVirtualGpuAtATime) {
  Desk desk(GetParam(), {.model = QueueModel::kMrq, .depth = 4});
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  EXPECT_EQ(desk.goes(0), Ids{1});
  desk.ask(2, 2, 10);
  EXPECT_EQ(desk.goes(10), Ids{});
  desk.done(1, 1, kMs, kMs);
  auto ids = desk.goes(kMs);
  if (desk.last.kind == Answer::Kind::kWait) ids = desk.goes(desk.last.until);
  EXPECT_EQ(ids, Ids{2});
}

TEST_P(EveryPolicy, GoesByPriorityWithinAVirtualGpu) {
  Desk desk(GetParam());
  desk.add(1, {.percent = 50});
  desk.ask(1, 1, 0, 0);
  desk.ask(1, 2, 0, 5);
  desk.ask(1, 3, 0, -1);
  desk.ask(1, 4, 0, 5);
  Ids order;
  for (Time now = 0; now < 4; ++now) {
    const auto ids = desk.goes(now);
    ASSERT_EQ(ids.size(), 1u);
    order.push_back(ids[0]);
    desk.done(1, ids[0], 1, now + 1);
  }
  EXPECT_EQ(order, (Ids{2, 4, 1, 3}));
}

TEST_P(EveryPolicy, HoldsThePausedAndForgetsTheRemoved) {
  Desk desk(GetParam());
  desk.add(1, {.percent = 50});
  desk.add(2, {.percent = 50});
  desk.ask(1, 1, 0);
  ASSERT_EQ(desk.scheduler.set_paused(1, true, 0), Error::kNone);
  EXPECT_EQ(desk.goes(0), Ids{});
  EXPECT_EQ(desk.last.kind, Answer::Kind::kHold);
  desk.ask(2, 2, 0);
  EXPECT_EQ(desk.goes(0), Ids{2});
  ASSERT_EQ(desk.scheduler.set_paused(1, false, 10), Error::kNone);
  EXPECT_EQ(desk.goes(10), Ids{});
  ASSERT_EQ(desk.scheduler.remove(2, 20), Error::kNone);  // with its time slice in flight
  EXPECT_EQ(desk.goes(20), Ids{1});
  EXPECT_EQ(desk.scheduler.completion(2, kCompute, 2, 5, 30), Error::kUnknownVgpu);
  desk.ask(1, 3, 30);
  ASSERT_EQ(desk.scheduler.cancel(1, kCompute, 3, 40), Error::kNone);
  desk.done(1, 1, kMs, kMs);
  EXPECT_EQ(desk.goes(2 * kMs), Ids{});
  desk.add(3, {.percent = 50}, 3 * kMs);  // in the slot of the removed one
  desk.ask(3, 4, 3 * kMs);
  EXPECT_EQ(desk.goes(3 * kMs), Ids{4});
}

TEST_P(EveryPolicy, KeepsEnginesApartUnderMrqOnly) {
  for (const auto model : {QueueModel::kSdq, QueueModel::kMrq}) {
    Desk desk(GetParam(), {.model = model, .depth = 1});
    desk.add(1, {.percent = 50});
    desk.add(2, {.percent = 50});
    desk.ask(1, 1, 0, 0, Engine::kCompute);
    desk.ask(2, 2, 0, 0, Engine::kCopyIn);
    EXPECT_EQ(desk.goes(0, Engine::kCompute), Ids{1});
    EXPECT_EQ(desk.goes(0, Engine::kCopyIn), model == QueueModel::kMrq ? Ids{2} : Ids{});
  }
}

TEST_P(EveryPolicy, LivesWithClockSteps) {
  Desk desk(GetParam());
  desk.add(1, {.percent = 50}, kSecond);
  RequestId id = 0;
  Time now = 0;
  for (const Time step : {-kSecond, Time{0}, 3600 * kSecond, kLongest / 2, Time{-5}}) {
    now += step;
    desk.ask(1, ++id, now);
    EXPECT_EQ(desk.goes(now), Ids{id});
    desk.done(1, id, kMs, now);
    desk.scheduler.tick(now);
  }
  EXPECT_EQ(desk.scheduler.tenant(1, kCompute)->used, 5 * kMs);
}

TEST(MakePolicy, KnowsItsNames) {
  EXPECT_EQ(make_policy("lottery"), nullptr);
  EXPECT_NE(make_policy("band+"), nullptr);
}

}  // namespace
}  // namespace bandsaw::sched
