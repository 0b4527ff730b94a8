#include "vgpu-sched/policy/fifo.h"

#include <gtest/gtest.h>

#include "tests/unit/sched/desk.h"

namespace bandsaw::sched {
namespace {

TEST(Fifo, GoesByArrivalWhateverTheShares) {
  Desk desk("fifo");
  desk.add(1, {.percent = 90});
  desk.add(2, {.percent = 10});
  desk.ask(2, 1, 0);
  desk.ask(1, 2, 1);
  desk.ask(2, 3, 2);
  desk.ask(1, 4, 3);
  const VgpuId owners[] = {2, 1, 2, 1};
  for (RequestId id = 1; id <= 4; ++id) {
    EXPECT_EQ(desk.goes(static_cast<Time>(id) * kSecond), Ids{id});
    desk.done(owners[id - 1], id, kSecond, static_cast<Time>(id + 1) * kSecond);
  }
}

}  // namespace
}  // namespace bandsaw::sched
