#include "memory/managed/backing.h"

#include <gtest/gtest.h>

namespace bandsaw::managed {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(Backing, DividesAChunkIntoPieces) {
  const Backing small(6 * kMiB, false);
  ASSERT_EQ(small.pieces().size(), 3u);
  EXPECT_EQ(small.pieces()[2].run, (managed::Run{4 * kMiB, 2 * kMiB}));
  const Backing pooled(32 * kMiB, true);
  EXPECT_EQ(pooled.pieces().size(), 1u);
  const Backing uneven(18 * kMiB, false);  // two units each, the last shorter
  ASSERT_EQ(uneven.pieces().size(), 5u);
  EXPECT_EQ(uneven.pieces()[4].run, (managed::Run{16 * kMiB, 2 * kMiB}));
  const Backing large(2048 * kMiB, false);
  EXPECT_EQ(large.pieces().size(), 32u);
}

TEST(Backing, KnowsWhatARunLacks) {
  Backing backing(16 * kMiB, false);
  EXPECT_EQ(backing.missing({kMiB, 2 * kMiB}), (std::vector<size_t>{0, 1}));
  backing.came(1, 77, 10);
  EXPECT_EQ(backing.missing({kMiB, 2 * kMiB}), (std::vector<size_t>{0}));
  EXPECT_EQ(backing.missing({2 * kMiB, 2 * kMiB}), (std::vector<size_t>{}));
  EXPECT_EQ(backing.missing({2 * kMiB, 0}), (std::vector<size_t>{}));
  EXPECT_EQ(backing.backed_bytes(), 2 * kMiB);
  EXPECT_EQ(backing.went(1, 20), 77u);
  EXPECT_EQ(backing.backed_bytes(), 0u);
  EXPECT_EQ(backing.missing({2 * kMiB, 2 * kMiB}), (std::vector<size_t>{1}));
}

TEST(Backing, NoticesQuickReturns) {
  Backing backing(2 * kMiB, false);
  uint64_t now = 1;
  backing.came(0, 1, now);
  EXPECT_EQ(backing.pieces()[0].returns, 0u);
  for (uint32_t turn = 1; turn <= 3; ++turn) {
    backing.went(0, now += 1000);
    backing.came(0, 1, now += Backing::kQuickReturnNs - 1);
    EXPECT_EQ(backing.pieces()[0].returns, turn);
  }
  backing.went(0, now += 1000);
  backing.came(0, 1, now += Backing::kQuickReturnNs);
  EXPECT_EQ(backing.pieces()[0].returns, 0u);
}

TEST(Backing, UseIsRememberedByPieces) {
  Backing backing(16 * kMiB, false);
  backing.used({3 * kMiB, 2 * kMiB}, 5);
  EXPECT_EQ(backing.pieces()[0].used_ns, 0u);
  EXPECT_EQ(backing.pieces()[1].used_ns, 5u);
  EXPECT_EQ(backing.pieces()[2].used_ns, 5u);
  EXPECT_EQ(backing.pieces()[3].used_ns, 0u);
}

TEST(Victims, AreChosenInOrder) {
  EXPECT_EQ(choose_victim({}), std::nullopt);
  std::vector<Victim> all;
  const auto goes = [&] { return *choose_victim(all); };
  all.push_back({.copy_bytes = 1, .used_ns = 9});
  EXPECT_EQ(goes(), 0u);
  all.push_back({.copy_bytes = 1, .used_ns = 8});  // longer ago
  EXPECT_EQ(goes(), 1u);
  all.push_back({.copy_bytes = 1, .thrashes = true, .used_ns = 1});
  EXPECT_EQ(goes(), 1u);
  all.push_back({.copy_bytes = 1, .prefers_host = true, .used_ns = 20});
  EXPECT_EQ(goes(), 3u);
  all.push_back({.copy_bytes = 1, .at_work = true, .prefers_host = true, .used_ns = 1});
  EXPECT_EQ(goes(), 3u);
  all.push_back({.copy_bytes = 0, .at_work = true, .used_ns = 30});  // the host has it all
  EXPECT_EQ(goes(), 5u);
}

// Three pieces in turn where there is room for two: the least recently used one is the wrong choice there,
// and once that is noticed a part stays.
TEST(Victims, ACircleThatDoesNotFitKeepsAPart) {
  Backing backing(6 * kMiB, false);
  uint64_t now = 1, moves = 0;
  size_t room = 2;
  for (int turn = 0; turn < 300; ++turn) {
    const size_t wanted = static_cast<size_t>(turn) % 3;
    now += 1'000'000;
    if (!backing.pieces()[wanted].memory) {
      if (!room) {
        std::vector<Victim> victims;
        std::vector<size_t> which;
        for (size_t i = 0; i < 3; ++i) {
          const auto& piece = backing.pieces()[i];
          if (i == wanted || !piece.memory) continue;
          victims.push_back({.copy_bytes = 1, .thrashes = piece.returns > 0, .used_ns = piece.used_ns});
          which.push_back(i);
        }
        backing.went(which[*choose_victim(victims)], now);
        ++room;
      }
      backing.came(wanted, 1, now);
      --room;
      ++moves;
    }
    backing.used(backing.pieces()[wanted].run, now);
  }
  EXPECT_LT(moves, 170u);  // by least recent use alone: each time
}

}  // namespace
}  // namespace bandsaw::managed
