// In which order chunks leave the device and come to it, so that both directions are copied at once and nothing comes
// before there is room for it. A table only: whoever carries it out says what has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace bandsaw::swap {

// Not thread-safe.
class Exchange {
 public:
  struct Move {
    uint64_t address = 0, bytes = 0;
    bool to_device = false;
  };
  // Of each direction: while one is copied, the memory of another changes its place.
  static constexpr size_t kUnderWayMost = 2;

  // Each in this order. `room`: bytes that may come before anything has gone: what is kept for this is the device's
  // temporal swap space.
  Exchange(std::span<const Move> out, std::span<const Move> in, uint64_t room);

  // What is to begin now. Nothing: one that is under way has to end first, or all is done.
  std::optional<Move> next();
  // Of those that have begun, in any order within a direction. `moved`: false: it stays where it was, and what has not
  // begun stays too.
  void ended(const Move& move, bool moved);
  size_t under_way() const { return leaving_ + coming_; }

 private:
  std::vector<Move> out_, in_;
  size_t next_out_ = 0, next_in_ = 0;
  size_t leaving_ = 0, coming_ = 0;
  uint64_t room_;
  bool stopped_ = false;
};

// Two of one size that change places: the one that comes takes the memory of the one that goes.
struct Pair {
  Exchange::Move out, in;
};
// Takes as many pairs as there are, in the order of both.
std::vector<Pair> take_pairs(std::vector<Exchange::Move>* out, std::vector<Exchange::Move>* in);

}  // namespace bandsaw::swap
