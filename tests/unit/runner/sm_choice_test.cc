// Which SMs are taken from persistent blocks, and how, by what these have stamped.
#include "backend/runner/slicing/sm_choice.h"

#include <gtest/gtest.h>

namespace bandsaw::runner {
namespace {

using ptx::BlockStamp;

constexpr double kStampUnit = 1 << ptx::kStampShift;  // ns

BlockStamp on(uint32_t sm, uint32_t claimed) { return BlockStamp{sm} << 32 | claimed; }

using StopWords = std::vector<uint32_t>;
constexpr uint32_t kEnds = ptx::kStopClaiming, kDrops = ptx::kStopAndDrop;

// Blocks take 100 units. SM 4 has run for 60 and 10 of them, SM 7 for 90 and 80, SM 9 for 1 and 0; one place is
// nobody's. The clock has wrapped meanwhile.
const std::vector<BlockStamp> kSeenStamps = {on(4, 0u - 30), on(7, 0u - 60), on(9, 29), ptx::kNoBlock,
                                             on(4, 20),      on(7, 0u - 50), on(9, 30)};

SmRequest request(size_t sms, double bound, bool may_drop) {
  return {.sms = sms, .bound_ns = bound * kStampUnit, .block_ns = 100 * kStampUnit, .may_drop = may_drop};
}

TEST(SmChoice, TheSmWhoseBlocksEndSoonestIsDrained) {
  const SmChoice choice = choose_sms(kSeenStamps, request(1, 25, false));
  EXPECT_EQ(choice.stops, (StopWords{0, kEnds, 0, 0, 0, kEnds, 0}));
  EXPECT_EQ(choice.sms, 1u);
  EXPECT_EQ(choice.drained, 2u);
  EXPECT_EQ(choice.late, 0u);
  EXPECT_NEAR(choice.latency_ns, 20 * kStampUnit, 1);
}

TEST(SmChoice, WhatHasJustBegunIsDroppedAndWhatIsAboutToEndEnds) {
  // Dropping SM 9's blocks loses a unit, ending SM 7's one of them 10.
  const SmChoice one = choose_sms(kSeenStamps, request(1, 5, true));
  EXPECT_EQ(one.stops, (StopWords{0, 0, kDrops, 0, 0, 0, kDrops}));
  // Blocks of SM 7 end within the bound, and one of them waits for the other for 10 units. Of the other SMs each holds
  // a block that can only be dropped, and has run for longer.
  const std::vector<BlockStamp> later = {on(7, 0u - 60), on(7, 0u - 50), on(8, 0u - 40),
                                         on(8, 0u - 30), on(9, 0u - 35), on(9, 30)};
  const SmChoice ends = choose_sms(later, request(1, 25, true));
  EXPECT_EQ(ends.stops, (StopWords{kEnds, kEnds, 0, 0, 0, 0}));
  EXPECT_EQ(ends.dropped, 0u);
}

TEST(SmChoice, HalfOfTheSmsStay) {
  const SmChoice choice = choose_sms(kSeenStamps, request(100, 1000, true));
  EXPECT_EQ(choice.sms, 1u);
  EXPECT_EQ(choose_sms(std::vector{on(3, 5)}, request(2, 1000, false)).sms, 1u) << "but of one it is all";
}

TEST(SmChoice, AMissedBoundIsSaid) {
  const SmChoice choice = choose_sms(kSeenStamps, request(1, 5, false));
  EXPECT_EQ(choice.late, 1u);
  EXPECT_EQ(choice.stops, (StopWords{0, kEnds, 0, 0, 0, kEnds, 0})) << "the one that is free soonest";
}

TEST(SmChoice, NothingIsKnown) {
  EXPECT_EQ(choose_sms(std::vector{ptx::kNoBlock}, request(2, 5, true)).sms, 0u);
  SmRequest unknown = request(1, 5, true);
  unknown.block_ns = 0;  // then only dropping has a cost that is known
  EXPECT_EQ(choose_sms(kSeenStamps, unknown).dropped, 2u);
  // Nonsense in the stamps: some choice, of places that are there.
  const std::vector<BlockStamp> nonsense = {~BlockStamp{0} - 1, 0, 1u << 31, on(~0u, ~0u)};
  EXPECT_EQ(choose_sms(nonsense, request(9, 5, true)).stops.size(), nonsense.size());
}

}  // namespace
}  // namespace bandsaw::runner
