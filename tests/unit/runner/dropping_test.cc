// Persistent blocks that may drop what they run: a launch is over when that was run again.
#include "tests/unit/runner/sliced.h"

namespace bandsaw::runner {
namespace {

// Three persistent blocks of a kernel with a loop.
class Dropping : public Sliced {
 protected:
  static SlicingSettings settings() {
    SlicingSettings made = forced(3, VariantChoice::kPersistent);
    made.drop_ns = 0;
    return made;
  }
  Dropping() : Sliced(settings()) {
    function_ = load(with(
        ".reg .pred %p<2>; mov.u32 %r3, 0; again: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 900; @%p1 bra again;"));
  }
};

TEST_F(Dropping, WhatWasDroppedIsClaimedBeforeTheLaunchIsOver) {
  device().claims = 12;
  device().drops = 2;
  launch(12);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  const Seen expected = {"3 persistent from 0", "copy", "copy", "3 persistent from 12", "copy", "copy"};
  EXPECT_EQ(device().seen(), expected);
  EXPECT_EQ(counters().grid_slices, 2u);
}

}  // namespace
}  // namespace bandsaw::runner
