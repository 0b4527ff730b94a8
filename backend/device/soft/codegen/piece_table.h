// The pieces of one kernel's code (pieces.h) in one context, each compiled when it is first needed, or beside one that
// is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/device/soft/compile.h"
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
  using Loaded = Program::Loaded;
  using Make = std::function<void*(uint32_t piece, std::string* log)>;  // nullptr: it cannot be compiled
  using Start = std::function<Loaded::Wait(uint32_t piece, Loaded::Make make)>;
  // `start` as in Loaded::compile_by(). While one piece is waited for, those that follow it are compiled too, as many
  // as go `at_once`: a warp mostly comes there next.
  PieceTable(uint32_t count, uint32_t at_once, Make make, Start start)
      : at_once_(at_once), make_(std::move(make)), start_(std::move(start)), made_(count), waits_(count) {}
  PieceCode code(uint32_t piece) {
    void* known = made_[piece].load(std::memory_order_acquire);
    if (!known) made_[piece].store(known = wait_for(piece), std::memory_order_release);
    return reinterpret_cast<PieceCode>(known);
  }

 private:
  void* wait_for(uint32_t piece) {
    Loaded::Wait wait;
    {
      std::lock_guard lock(mutex_);
      begin(piece);
      const uint64_t end = std::min<uint64_t>(waits_.size(), uint64_t{piece} + at_once_);
      for (uint32_t next = piece + 1; next < end && under_way_ < at_once_; ++next) begin(next);
      wait = waits_[piece];
    }
    return wait();
  }
  void begin(uint32_t piece) {
    if (waits_[piece]) return;
    ++under_way_;
    waits_[piece] = start_(piece, [this, piece](std::string* log) {
      void* const code = make_(piece, log);
      --under_way_;
      return code;
    });
  }

  const uint32_t at_once_;
  const Make make_;
  const Start start_;
  std::atomic<uint32_t> under_way_ = 0;
  std::vector<std::atomic<void*>> made_;
  std::mutex mutex_;
  std::vector<Loaded::Wait> waits_;  // guarded by mutex_; of those that were begun
};

}  // namespace bandsaw::soft
