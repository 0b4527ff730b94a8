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
  device_->hold_work(false);
  device_->finish();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
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
  device_->hold_work(false);
  device_->finish();
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::runner
