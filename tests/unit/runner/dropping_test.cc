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

// Reads [from], stores to [to], and goes round after that.
constexpr std::string_view kStoresFirst = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry moves(.param .u64 from, .param .u64 to)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd2], %r1;
again:
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, 900;
  @%p bra again;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

TEST(Dropped, AtAnyMomentWhereALaunchReadsApartFromWhatItWrites) {
  FakeDevice device(0x7d0000000000, nullptr);
  UsagePageView usage_page;
  SlicingStats stats(&usage_page);
  SlicingSettings settings;
  settings.force_blocks = 1;  // variants are made while the launch waits
  settings.drop_ns = 0;
  KernelCloner cloner(&device, 0);
  Allocations allocations;
  KernelVariants variants(&device, &cloner, settings, &stats, &allocations);
  const auto kernel = std::make_shared<KnownKernel>();
  const std::string text(kStoresFirst);
  kernel->name = "moves";
  kernel->image = cloner.keep(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  const auto context = std::make_shared<Context>();
  const auto found = [&](uint64_t from, uint64_t to) {
    const uint64_t pointers[] = {from, to};
    Launch launch;
    launch.grid[0] = launch.grid[1] = launch.grid[2] = 1;
    launch.parameters = std::as_bytes(std::span(pointers));
    return variants.find(kernel, context, launch, KernelVariant::kPersistent);
  };
  const auto careful = found(0x1000, 0x2000);  // nobody knows these
  ASSERT_TRUE(careful);
  EXPECT_TRUE(careful->if_apart);
  allocations.add(0x1000, 0x100);
  EXPECT_EQ(found(0x1000, 0x2000), careful);
  allocations.add(0x2000, 0x100);
  EXPECT_EQ(found(0x1000, 0x1080), careful);
  const auto apart = found(0x1000, 0x2080);
  ASSERT_TRUE(apart);
  EXPECT_NE(apart, careful);
  EXPECT_FALSE(apart->if_apart);
  EXPECT_EQ(found(0x2000, 0x1080), apart);
  EXPECT_EQ(found(0x1000, 0x1000), careful);
}

}  // namespace
}  // namespace bandsaw::runner
