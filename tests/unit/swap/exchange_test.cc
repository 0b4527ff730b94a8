#include "memory/swap/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace bandsaw::swap {
namespace {

using Move = Exchange::Move;
constexpr uint64_t kChunk = 32, kCopy = 10, kRemap = 2;  // bytes, and what each takes in virtual time

std::vector<Move> some(size_t count, uint64_t from, uint64_t bytes = kChunk) {
  std::vector<Move> moves;
  for (size_t i = 0; i < count; ++i) moves.push_back({from + i * bytes, bytes, false});
  return moves;
}

// A device that copies one chunk at a time in each direction, and whose driver changes what lies where with one thread.
class Bus {
 public:
  explicit Bus(Exchange* exchange, uint64_t room) : exchange_(*exchange), room_(static_cast<int64_t>(room)) {}

  uint64_t run() {
    uint64_t driver = 0;
    std::array<uint64_t, 2> copier{0, 0};
    for (;;) {
      for (auto move = exchange_.next(); move; move = exchange_.next()) {
        uint64_t& free = copier[move->to_device];
        free = std::max(free, driver) + kCopy;
        under_way_.push_back({*move, free});
        if (move->to_device) room_ -= static_cast<int64_t>(move->bytes);
        least_room_ = std::min(least_room_, room_);
      }
      if (under_way_.empty()) return driver;
      const auto first = std::ranges::min_element(under_way_, {}, &UnderWay::ends);
      driver = std::max(driver, first->ends) + kRemap;
      if (!first->move.to_device) room_ += static_cast<int64_t>(first->move.bytes);
      order_.push_back(first->move.address);
      exchange_.ended(first->move, true);
      under_way_.erase(first);
    }
  }
  int64_t least_room() const { return least_room_; }
  const std::vector<uint64_t>& order() const { return order_; }

 private:
  struct UnderWay {
    Move move;
    uint64_t ends = 0;
  };
  Exchange& exchange_;
  int64_t room_, least_room_ = 0;
  std::vector<UnderWay> under_way_;
  std::vector<uint64_t> order_;
};

TEST(ExchangeTest, BothDirectionsAreCopiedAtOnce) {
  constexpr size_t kCount = 50;
  Exchange exchange(some(kCount, 0x1000), some(kCount, 0x100000), 2 * kChunk);
  Bus bus(&exchange, 2 * kChunk);
  EXPECT_LE(bus.run(), kCount * kCopy * 21 / 20);
  EXPECT_GE(bus.least_room(), 0);
  EXPECT_EQ(bus.order().size(), 2 * kCount);
}

TEST(ExchangeTest, NothingComesBeforeThereIsRoom) {
  constexpr size_t kCount = 10;
  Exchange exchange(some(kCount, 0x1000), some(kCount, 0x100000), 0);
  Bus bus(&exchange, 0);
  EXPECT_LE(bus.run(), (kCount + 3) * (kCopy + kRemap));
  EXPECT_EQ(bus.least_room(), 0);
  EXPECT_EQ(bus.order().size(), 2 * kCount);
}

TEST(ExchangeTest, ALargeOneWaitsForSeveralSmallOnes) {
  Exchange exchange(some(4, 0x1000), some(1, 0x100000, 4 * kChunk), kChunk / 2);
  Bus bus(&exchange, kChunk / 2);
  bus.run();
  EXPECT_GE(bus.least_room(), 0);
  EXPECT_EQ(bus.order().back(), 0x100000u);
}

TEST(ExchangeTest, WhatFindsNoRoomStays) {
  Exchange exchange({}, some(2, 0x100000), kChunk);
  Bus bus(&exchange, kChunk);
  bus.run();
  EXPECT_EQ(bus.order(), (std::vector<uint64_t>{0x100000}));
}

TEST(ExchangeTest, AfterAFailureNothingBegins) {
  Exchange exchange(some(5, 0x1000), some(5, 0x100000), kChunk);
  std::vector<Move> begun;
  for (auto move = exchange.next(); move; move = exchange.next()) begun.push_back(*move);
  ASSERT_EQ(begun.size(), Exchange::kUnderWayMost + 1);
  exchange.ended(begun[0], false);
  EXPECT_FALSE(exchange.next());
  exchange.ended(begun[1], true);
  exchange.ended(begun[2], true);
  EXPECT_FALSE(exchange.next());
  EXPECT_EQ(exchange.under_way(), 0u);
}

}  // namespace
}  // namespace bandsaw::swap
