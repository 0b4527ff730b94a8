// Where the newest bytes of one allocation of managed memory lie: a table of blocks, and the policies of moving them.
// No clock, no locks, nothing moves here: the owner asks what is to be done, does it, and says that it is done.
//
// A kernel may write all that it reaches, and nobody sees what it does write. So a block that the device may use is
// the device's alone (kDevice), and the program's next touch of it brings it back. What the program has only read since
// (kBoth) goes to the device again without a copy.
#pragma once

#include <cstdint>
#include <vector>

namespace bandsaw::managed {

inline constexpr uint64_t kBlockBytes = 2u << 20;

enum class Holder : uint8_t {
  kHost,    // the host's pages are the newest; the program may write them
  kBoth,    // the same bytes on both sides; the program may read
  kDevice,  // the device may have newer ones; the program may not touch the pages
};

// Bytes of the allocation, from its beginning.
struct Run {
  uint64_t offset = 0, bytes = 0;
  uint64_t end() const { return offset + bytes; }
  bool operator==(const Run&) const = default;
};

// A long move is done in pieces, so that one is copied while the next is prepared.
inline constexpr uint64_t kPieceBytes = 16u << 20;
std::vector<Run> pieces_of(const std::vector<Run>& runs, uint64_t most = kPieceBytes);
// What of `runs` lies in `piece`.
std::vector<Run> parts_in(const std::vector<Run>& runs, Run piece);

struct Touch {
  uint64_t offset = 0;
  bool write = false;
  uint64_t thread = 0;  // of the program; any number that differs between threads
  uint64_t now_ns = 0;
};

// What a touch asks for.
struct ToHost {
  enum class What : uint8_t {
    kNothing,  // the pages are there: let the thread try again
    kUnlock,   // they are there and become writable
    kFetch,    // `run` is copied from the device
  };
  What what = What::kNothing;
  Run run;
  bool writable = false;  // kFetch: the program may write afterwards; else the device's copy stays good
};

// What the device's use of a range asks for. `close`: the program loses these; `copy`: of these, what is copied to the
// device once they are closed.
struct ToDevice {
  std::vector<Run> close, copy;
  bool empty() const { return close.empty(); }
};

// Not thread-safe.
class Residency {
 public:
  // A new allocation is the host's. `bytes` above 0.
  explicit Residency(uint64_t bytes, uint64_t block_bytes = kBlockBytes);

  uint64_t bytes() const { return bytes_; }
  bool all_on_device() const { return away_ == 0; }
  bool any_on_device() const { return away_ < holders_.size(); }
  Holder holder(uint64_t offset) const { return holders_[offset / block_bytes_]; }

  // The part of the allocation in whole blocks that holds `run`, which is cut off at the end.
  Run whole_blocks(Run run) const;

  ToDevice to_device(Run run) const;
  void went_to_device(Run run);

  // A program that goes on from one fetched run to the next gets longer ones.
  ToHost to_host(const Touch& touch) const;
  // What the device has of `run` is wanted by the host, all of it or up to what the host has already.
  std::vector<Run> on_device(Run run) const;
  void came_to_host(Run run, bool writable);
  // A fetch because of a touch is done: notes for the policies below.
  void touched(const ToHost& fetched, const Touch& touch);

  // Thrashing: a thread works on a block while others launch kernels, each of which takes the block away. Until then
  // the launch of another thread should leave it; 0: no need to wait. Grows with each quick return of the block.
  uint64_t keep_until_ns(uint64_t launching_thread) const;
  uint32_t quick_returns() const { return quick_returns_; }

 private:
  template <typename Visit>
  void runs_of(Run run, bool (*wanted)(Holder), Visit visit) const;
  void set(Run run, Holder holder);

  const uint64_t bytes_, block_bytes_;
  std::vector<Holder> holders_;
  uint64_t away_ = 0;                              // blocks that are not the device's alone
  uint64_t next_offset_ = ~0ull, last_bytes_ = 0;  // of the last fetch: its end, its length
  uint64_t last_touch_ns_ = 0, last_thread_ = 0;
  uint32_t quick_returns_ = 0;
};

}  // namespace bandsaw::managed
