#include "memory/swap/exchange.h"

#include <algorithm>

namespace bandsaw::swap {

Exchange::Exchange(std::span<const Move> out, std::span<const Move> in, uint64_t room)
    : out_(out.begin(), out.end()), in_(in.begin(), in.end()), room_(room) {
  for (Move& move : out_) move.to_device = false;
  for (Move& move : in_) move.to_device = true;
}

std::optional<Exchange::Move> Exchange::next() {
  if (stopped_) return std::nullopt;
  // What leaves makes room, so it never waits for what comes.
  if (next_out_ < out_.size() && leaving_ < kUnderWayMost) {
    ++leaving_;
    return out_[next_out_++];
  }
  if (next_in_ < in_.size() && coming_ < kUnderWayMost && in_[next_in_].bytes <= room_) {
    ++coming_;
    room_ -= in_[next_in_].bytes;
    return in_[next_in_++];
  }
  return std::nullopt;
}

void Exchange::ended(const Move& move, bool moved) {
  --(move.to_device ? coming_ : leaving_);
  if (moved != move.to_device) room_ += move.bytes;
  stopped_ |= !moved;
}

std::vector<Pair> take_pairs(std::vector<Exchange::Move>* out, std::vector<Exchange::Move>* in) {
  std::vector<Pair> pairs;
  for (auto goes = out->begin(); goes != out->end();) {
    const auto comes = std::ranges::find(*in, goes->bytes, &Exchange::Move::bytes);
    if (comes == in->end()) {
      ++goes;
      continue;
    }
    pairs.push_back({*goes, *comes});
    pairs.back().out.to_device = false;
    pairs.back().in.to_device = true;
    in->erase(comes);
    goes = out->erase(goes);
  }
  return pairs;
}

}  // namespace bandsaw::swap
