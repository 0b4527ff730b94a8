// Pieces of copies and fills: together they are the whole, in order, and none is larger than it may be.
#include "backend/runner/execution/box_cutter.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/runner/execution/piece_size.h"

namespace bandsaw::runner {
namespace {

TEST(BoxCutterTest, PiecesAreTheWholeOnceAndInOrder) {
  std::mt19937_64 random(14);
  for (int round = 0; round < 500; ++round) {
    const uint64_t width = 1 + random() % 40, height = 1 + random() % 7, depth = 1 + random() % 5;
    const uint64_t most = 1 + random() % 200;
    BoxCutter cutter(width, height, depth, 1, 1);
    uint64_t at = 0;
    while (cutter.left() != 0) {
      const BoxCutter::Piece piece = cutter.next(most);
      EXPECT_EQ((piece.z * height + piece.y) * width + piece.x, at);
      EXPECT_TRUE(piece.depth == 1 || (piece.y == 0 && piece.height == height));
      EXPECT_TRUE(piece.height == 1 || (piece.x == 0 && piece.width == width));
      EXPECT_LE(piece.bytes(), most);
      ASSERT_GT(piece.bytes(), 0u);
      at += piece.bytes();
      ASSERT_EQ(cutter.left(), width * height * depth - at);
    }
    EXPECT_EQ(at, width * height * depth);
  }
}

TEST(CopyCutterTest, BothEndsMove) {
  Copy copy;
  copy.source = {.address = 1000, .pitch = 100, .height = 10};
  copy.destination = {.address = 50000, .pitch = 64, .height = 4};
  copy.width_bytes = 64;
  copy.height = 4;
  copy.depth = 3;
  CopyCutter cutter(copy);
  Copy piece = cutter.next(600);  // two planes
  EXPECT_EQ(piece.depth, 2u);
  EXPECT_TRUE(piece.more);
  piece = cutter.next(130);  // two rows of the third
  EXPECT_EQ(piece.source.address, 1000u + 2 * 10 * 100);
  EXPECT_EQ(piece.destination.address, 50000u + 2 * 4 * 64);
  EXPECT_EQ(piece.height, 2u);
  piece = cutter.next(63);  // most of a row
  EXPECT_EQ(piece.source.address, 1000u + (2 * 10 + 2) * 100);
  EXPECT_EQ(piece.width_bytes, 63u);
  piece = cutter.next(1000);  // the rest of it, and of no other
  EXPECT_EQ(piece.source.address, 1000u + (2 * 10 + 2) * 100 + 63);
  EXPECT_EQ(piece.width_bytes, 1u);
  EXPECT_TRUE(piece.more);
  piece = cutter.next(1000);
  EXPECT_EQ(piece.height, 1u);
  EXPECT_FALSE(piece.more);
  EXPECT_EQ(cutter.left(), 0u);
}

TEST(CopyCutterTest, AnArraysRowsAreNotCut) {
  Copy copy;
  copy.source.address = 4096;
  copy.source.pitch = 100;
  copy.destination.array = std::make_shared<Array>();
  copy.destination.x_bytes = 8;
  copy.destination.y = 5;
  copy.destination.z = 1;
  copy.width_bytes = 100;
  copy.height = 11;
  CopyCutter cutter(copy);
  for (const uint64_t rows : {4, 8, 11}) {
    const Copy piece = cutter.next(rows == 8 ? 799 : 10);
    EXPECT_EQ(piece.width_bytes, 100u);
    EXPECT_EQ(piece.destination.x_bytes, 8u);
    EXPECT_EQ(piece.destination.z, 1u);
    EXPECT_EQ(piece.destination.y - 5 + piece.height, rows);
    EXPECT_EQ(piece.source.address, 4096 + (piece.destination.y - 5) * 100);
  }
  EXPECT_EQ(cutter.left(), 0u);
}

TEST(FillCutterTest, ElementsStayWhole) {
  FillCutter cutter({.address = 4096, .pitch = 64, .width = 10, .height = 3, .element_bytes = 4, .value = 7});
  vgpu_fill piece = cutter.next(85);  // two rows of 40 bytes
  EXPECT_EQ(piece.height, 2u);
  piece = cutter.next(19);
  EXPECT_EQ(piece.address, 4096u + 2 * 64);
  EXPECT_EQ(piece.width, 4u);
  piece = cutter.next(3);  // no element is that small
  EXPECT_EQ(piece.address, 4096u + 2 * 64 + 16);
  EXPECT_EQ(piece.width, 1u);
  piece = cutter.next(100);
  EXPECT_EQ(piece.width, 5u);
  EXPECT_EQ(cutter.left(), 0u);
}

TEST(PieceSizeTest, FollowsWhatWasMeasured) {
  PieceSize size;
  const uint64_t unknown = size.bytes(1, BulkKind::kLinear, 2'000'000);
  EXPECT_EQ(unknown, uint64_t{16'000'000} / PieceSize::kStep * PieceSize::kStep);
  for (int i = 0; i < 8; ++i) size.learn(1, BulkKind::kLinear, 100 << 20, 2'000'000);  // 52 GB/s
  EXPECT_NEAR(static_cast<double>(size.bytes(1, BulkKind::kLinear, 2'000'000)), 100 << 20, 1 << 20);
  EXPECT_EQ(size.bytes(1, BulkKind::kStrided, 2'000'000), unknown);
  EXPECT_EQ(size.bytes(2, BulkKind::kLinear, 2'000'000), unknown);
}

TEST(PieceSizeTest, NonsenseKeepsItInBounds) {
  PieceSize size;
  EXPECT_EQ(size.bytes(0, BulkKind::kFill, 0), PieceSize::kLeast);
  EXPECT_EQ(size.bytes(0, BulkKind::kFill, ~uint64_t{0}), PieceSize::kMost);
  size.learn(0, BulkKind::kFill, PieceSize::kMost, 1);
  EXPECT_EQ(size.bytes(0, BulkKind::kFill, ~uint64_t{0}), PieceSize::kMost);
  size.learn(0, BulkKind::kLinear, PieceSize::kLeast, ~uint64_t{0});
  EXPECT_EQ(size.bytes(0, BulkKind::kLinear, 2'000'000), PieceSize::kLeast);
  size.learn(1, BulkKind::kLinear, 1, 1);  // too short to tell
  size.learn(1, BulkKind::kLinear, 1 << 20, 0);
  EXPECT_EQ(size.bytes(1, BulkKind::kLinear, 2'000'000), size.bytes(2, BulkKind::kLinear, 2'000'000));
}

}  // namespace
}  // namespace bandsaw::runner
