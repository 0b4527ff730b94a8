// Persistent blocks whose number changes while they run.
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

// Persistent blocks that are limited: where they run for long, tests make them one on each SM and two again, twice.
class Resized : public Sliced {
 protected:
  static SlicingSettings settings() {
    SlicingSettings made = forced(3, VariantChoice::kPersistent);
    made.resize = true;
    return made;
  }
  Resized() : Sliced(settings()) { device().limited = device().has_sides = device().hold = true; }
};

TEST_F(Resized, MoreComeBesideThemAndFewerStayWithoutAStop) {
  device_->hold_work(true);  // the counters' copies: no launch ends
  launch(30);
  TestRing::wait([&] { return device().seen().size() == 7; });  // those beside come after the limit is set
  const std::string beside = "1 persistent at most 3 from ";    // the device has one SM
  EXPECT_EQ(device().seen(),
            (Seen{"3 persistent at most 3 from 0", "copy", "fork 1", beside + "5", "copy", beside + "10", "copy"}));
  EXPECT_EQ(device().limits(), (std::vector<uint64_t>{1, 2, 1, 2}));
  let_end();
  // What all of them claimed counts, and what is left is launched as before.
  EXPECT_EQ(device().seen().at(7), "3 persistent at most 3 from 15");
  EXPECT_EQ(counters().launches, 1u);
}

TEST_F(Resized, OneThatHasNotBegunKeepsItsNumber) {
  device().begun = false;
  device_->hold_work(true);
  launch(30);
  TestRing::wait([&] { return device().queries >= 3; });
  EXPECT_EQ(device().told, 0);
  EXPECT_EQ(device().seen().size(), 2u);
  let_end();
}

// As above, where the arbiter plans: the number is the plan's, and no stop is in between.
class ResizedByPlan : public Resized {
 protected:
  ResizedByPlan() {
    // Once the kernel is known to run so, all of its launches are planned.
    device().hold = false;
    launch(3);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
    device().hold = true;
    gate().no_waiters = 1;
    plan();
  }
  ~ResizedByPlan() override { grant_page_->planned = 0; }

  void grant(uint32_t resident) {
    const uint32_t number = ++grants_;
    TestRing::wait([&] { return gate().asked == number; });
    gate().resident = resident;
    gate().granted = number;
    futex_wake(&gate().granted);
  }

  uint32_t grants_ = 0;
};

TEST_F(ResizedByPlan, TheNumberFollowsThePlanAndNothingAsksAnew) {
  const size_t before = device().limits().size();
  const auto told = [&](size_t more) { TestRing::wait([&] { return device().limits().size() == before + more; }); };
  device_->hold_work(true);
  launch(300);
  grant(2);
  told(4);  // what tests do by themselves
  gate().resident = 1;
  told(5);
  EXPECT_EQ(device().limits().back(), 1u);
  gate().resident = 2;
  told(6);
  EXPECT_EQ(device().limits().back(), 2u);
  gate().resident = 0;  // as many as fit, which are two
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(device().limits().size(), before + 6);
  EXPECT_EQ(gate().asked, 1u);
  gate().resident = kNoResident;  // no part in the plan: that takes a stop, and another ask
  told(7);
  device().claims = 300;
  device_->hold_work(false);
  device_->finish();
  grant(2);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
