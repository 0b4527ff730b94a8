// Which parts of a chunk of managed memory have device memory behind them, and which part gives its device memory up
// where the share is full. Device memory comes and goes by pieces; addresses stay. Tables only: no clock, no locks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/managed/residency.h"

namespace bandsaw::managed {

// The unit in which devices map memory.
inline constexpr uint64_t kMapUnit = 2u << 20;

// Not thread-safe.
class Backing {
 public:
  struct Piece {
    Run run;               // of the chunk
    uint64_t memory = 0;   // a handle of the owner's; 0: no device memory
    uint64_t used_ns = 0;  // when work of the device was last seen to reach it
    uint64_t gone_ns = 0;  // when it last gave its device memory up
    uint32_t returns = 0;  // how often in a row it came back within kQuickReturnNs
  };
  // Back within this time of its eviction, a piece should not have gone.
  static constexpr uint64_t kQuickReturnNs = 50'000'000;

  // `bytes` is a multiple of kMapUnit and above 0. `whole`: all of it is one piece; else there are up to eight pieces,
  // more where they would be larger than 64 MiB.
  Backing(uint64_t bytes, bool whole);

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Numbers of the pieces that `run` (of the chunk) needs and that have no device memory.
  std::vector<size_t> missing(Run run) const;
  uint64_t backed_bytes() const { return backed_; }
  uint64_t bytes() const { return bytes_; }

  void came(size_t piece, uint64_t memory, uint64_t now_ns);
  // Returns its handle.
  uint64_t went(size_t piece, uint64_t now_ns);
  void used(Run run, uint64_t now_ns);

 private:
  size_t first_of(Run run) const { return run.offset / piece_bytes_; }

  const uint64_t bytes_, piece_bytes_;
  uint64_t backed_ = 0;
  std::vector<Piece> pieces_;
};

// A piece that could give its device memory up.
struct Victim {
  uint64_t copy_bytes = 0;    // that only the device has: they are copied first
  bool at_work = false;       // work that may use it is queued or running: it is waited for first
  bool prefers_host = false;  // the program has said so
  bool thrashes = false;      // it came back soon after it went, last time
  uint64_t used_ns = 0;
};

// The number of the one to go: what costs no copy, then what no work uses, then what prefers the host, then what does
// not thrash, then what was used least recently; where all thrash, what was used last, because a program that goes
// round more than there is room for needs that again last. Nothing: there is none.
std::optional<size_t> choose_victim(std::span<const Victim> victims);

}  // namespace bandsaw::managed
