#include <gtest/gtest.h>

#include <array>

#include "memory/swap/book.h"

namespace bandsaw::swap {
namespace {

class FakeBook final : public Book {
 public:
  FakeBook(int64_t device, int64_t host, uint64_t chunk) : room{host, device}, chunk_(chunk) {}
  uint64_t chunk_bytes() const override { return chunk_; }
  bool charge(int64_t bytes, bool on_device) override {
    if (bytes > room[on_device]) return false;
    room[on_device] -= bytes;
    return true;
  }
  bool charge_move(uint64_t, bool) override { return false; }
  void exchanged(uint64_t) override {}
  void add(uint64_t, uint64_t, uint64_t, bool) override {}
  void remove(uint64_t) override {}
  bool keep(int64_t) override { return false; }
  void made(uint64_t) override {}
  void pin(uint64_t) override {}

  std::array<int64_t, 2> room;

 private:
  const uint64_t chunk_;
};

uint64_t on_device(const std::vector<Piece>& pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.on_device ? piece.bytes : 0;
  return bytes;
}

TEST(Place, TheDeviceFirst) {
  FakeBook book(100, 100, 32);
  const auto pieces = place(book, 70, 2);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[2].offset, 64u);
  EXPECT_EQ(pieces[2].bytes, 6u);
  EXPECT_EQ(on_device(pieces), 70u);
  EXPECT_EQ(on_device(place(book, 64, 2)), 0u);
}

TEST(Place, SmallerChunksWhereNeitherSideHasRoomForALargeOne) {
  FakeBook book(20, 12, 32);
  const auto pieces = place(book, 32, 2);
  EXPECT_EQ(on_device(pieces), 20u);
  EXPECT_EQ(book.room[0] + book.room[1], 0);
}

TEST(Place, TooMuchChargesNothing) {
  FakeBook book(20, 12, 32);
  EXPECT_TRUE(place(book, 33, 2).empty());
  EXPECT_EQ(book.room[0], 12);
  EXPECT_EQ(book.room[1], 20);
  EXPECT_TRUE(place(book, ~uint64_t{0} / 2, 2).empty());
}

TEST(Place, ChunksAreNeverBelowTheUnit) {
  FakeBook book(1000, 0, 1);
  for (const Piece& piece : place(book, 100, 8)) EXPECT_TRUE(piece.bytes == 8 || piece.offset == 96);
}

}  // namespace
}  // namespace bandsaw::swap
