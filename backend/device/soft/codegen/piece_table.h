// The pieces of one kernel's code (pieces.h) in one context, each compiled when it is first needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

// Where a warp goes on: a piece and one of its blocks.
constexpr uint64_t place_of(uint32_t piece, uint32_t block) { return uint64_t{piece} << 32 | block; }
constexpr uint32_t piece_of(uint64_t place) { return static_cast<uint32_t>(place >> 32); }
inline constexpr uint64_t kNoPlace = ~uint64_t{0};  // the warp has ended

// Runs from the place on; returns the first place in another piece. `frame`: what the pieces share.
using PieceCode = uint64_t (*)(WarpState* warp, std::byte* frame, uint64_t place);

// Thread-safe.
class PieceTable {
 public:
  using Make = std::function<void*(uint32_t piece)>;  // nullptr: it cannot be compiled
  PieceTable(uint32_t count, Make make) : made_(count), make_(std::move(make)) {}
  PieceCode code(uint32_t piece) {
    void* known = made_[piece].load(std::memory_order_acquire);
    if (!known) made_[piece].store(known = make_(piece), std::memory_order_release);
    return reinterpret_cast<PieceCode>(known);
  }

 private:
  std::vector<std::atomic<void*>> made_;
  const Make make_;
};

}  // namespace bandsaw::soft
