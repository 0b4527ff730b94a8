// Pieces of a long kernel: when they are begun, and who waits for which.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "backend/device/soft/codegen/piece_table.h"

namespace bandsaw::soft {
namespace {

// Compiles when it is told to. A piece's code is a number.
class Elsewhere {
 public:
  Elsewhere(uint32_t pieces, uint32_t at_once)
      : table(
            pieces, at_once, [this](uint32_t piece, std::string*) { return piece == fails ? nullptr : code(piece); },
            [this](uint32_t piece, Program::Loaded::Make make) {
              begun.push_back(piece);
              under_way[piece] = std::move(make);
              return [this, piece] { return result(piece); };
            }) {}
  void end(uint32_t piece) {
    std::string log;
    ended[piece] = std::exchange(under_way[piece], nullptr)(&log);
  }
  // The first who waits for a piece finds it compiled.
  void* result(uint32_t piece) {
    if (!ended.contains(piece)) end(piece);
    return ended[piece];
  }
  void* code(uint32_t piece) { return &codes[piece]; }
  bool has(uint32_t piece) { return reinterpret_cast<void*>(table.code(piece)) == code(piece); }

  uint32_t fails = ~0u;
  char codes[16] = {};
  std::vector<uint32_t> begun;
  std::map<uint32_t, Program::Loaded::Make> under_way;
  std::map<uint32_t, void*> ended;
  PieceTable table;
};
using Pieces = std::vector<uint32_t>;

TEST(PieceTable, OneAloneWhereOneGoesAtOnce) {
  Elsewhere one(16, 1);
  EXPECT_TRUE(one.has(3));
  EXPECT_TRUE(one.has(3));
  EXPECT_TRUE(one.has(5));
  EXPECT_EQ(one.begun, (Pieces{3, 5}));
}

TEST(PieceTable, ThoseThatFollowAreCompiledToo) {
  Elsewhere four(16, 4);
  EXPECT_TRUE(four.has(3));
  EXPECT_EQ(four.begun, (Pieces{3, 4, 5, 6}));
  four.end(4);
  EXPECT_TRUE(four.has(4));
  EXPECT_EQ(four.begun, (Pieces{3, 4, 5, 6, 7})) << "3 and 4 have ended";
  EXPECT_TRUE(four.has(10));
  EXPECT_EQ(four.begun, (Pieces{3, 4, 5, 6, 7, 10})) << "5, 6 and 7 are under way";
  EXPECT_TRUE(four.has(5));
}

TEST(PieceTable, NoneFollowsTheLast) {
  Elsewhere four(8, 4);
  EXPECT_TRUE(four.has(6));
  EXPECT_EQ(four.begun, (Pieces{6, 7}));
}

TEST(PieceTable, OneThatFailsFailsWhoComesThere) {
  Elsewhere two(8, 2);
  two.fails = 1;
  EXPECT_TRUE(two.has(0));
  two.end(1);
  EXPECT_TRUE(two.has(2));
  EXPECT_EQ(two.table.code(1), nullptr);
}

}  // namespace
}  // namespace bandsaw::soft
