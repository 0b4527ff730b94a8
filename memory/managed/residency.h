// Where the newest bytes of one allocation of managed memory lie: a table of ranges, and the policies of moving them.
// No clock, no locks, nothing moves here: the owner asks what is to be done, does it, and says that it is done.
//
// A kernel may write all that it reaches, and nobody sees what it does write. So a block that the device may use is
// the device's alone (kDevice), and the program's next touch of it brings it back. What the program has only read since
// (kBoth) goes to the device again without a copy.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace bandsaw::managed {

// What a single touch brings back; neighbours come along as said at Residency::to_host.
inline constexpr uint64_t kBlockBytes = 64u << 10;

enum class Holder : uint8_t {
  kHost,    // the host's pages are the newest; the program may write them
  kBoth,    // the same bytes on both sides; the program may read
  kDevice,  // the device may have newer ones; the program may not touch the pages
  kNobody,  // neither side has bytes that count; the program may not touch the pages
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

// What a program has said of the memory that it touches: all around will be wanted, or nothing but what was touched.
enum class Bias : uint8_t { kNone, kHost, kDevice };

struct Touch {
  uint64_t offset = 0;
  bool write = false;
  uint64_t thread = 0;  // of the program; any number that differs between threads
  uint64_t now_ns = 0;
  Bias bias = Bias::kNone;
};

// What a touch asks for.
struct ToHost {
  enum class What : uint8_t {
    kNothing,  // the pages are there: let the thread try again
    kUnlock,   // they are there and become writable
    kOpen,     // the pages of `run` are given to the program as they are
    kFetch,    // `run` is copied from the device
  };
  What what = What::kNothing;
  Run run;
  bool writable = false;  // the program may write afterwards; else the device's copy stays good
};

// What the device's use of a range asks for. `take`: these become the device's; `close`: of these, what the program
// loses before; `copy`: of those, what is copied to the device once they are closed.
struct ToDevice {
  std::vector<Run> take, close, copy;
  bool empty() const { return take.empty(); }
};

// Not thread-safe.
class Residency {
 public:
  // A new allocation is the host's. `bytes` above 0.
  explicit Residency(uint64_t bytes, uint64_t block_bytes = kBlockBytes);
  // Memory used again, whose bytes count no more: pages are open to the program as `from` says of the slice, but what
  // only the device has is nobody's.
  Residency(const Residency& from, Run slice);
  // Says of the part at `offset` what `part` says.
  void take_over(uint64_t offset, const Residency& part);

  uint64_t bytes() const { return bytes_; }
  bool all_on_device() const { return device_bytes_ == bytes_; }
  bool any_on_device() const { return device_bytes_ != 0; }
  // Work of the device may be using none of it.
  bool all_on_host() const;
  uint64_t device_bytes() const { return device_bytes_; }
  Holder holder(uint64_t offset) const;

  // The part of the allocation in whole blocks that holds `run`, which is cut off at the end.
  Run whole_blocks(Run run) const;
  // The whole blocks in `run`; no bytes: there are none.
  Run blocks_within(Run run) const;

  // `reads`: the device only reads it, so what the host has may stay there, too; `close` is then what the program may
  // no longer write.
  ToDevice to_device(Run run, bool reads = false) const;
  // `thread` is whose launch asked for it.
  void went_to_device(Run run, uint64_t thread = 0);
  // All of a plan for work that only reads.
  void shared_with_device(const ToDevice& plan);

  // A block; more of it where a program goes on from one fetched run to the next, and where more than half of the 128
  // KiB to 2 MiB around it is the host's then; all of these 2 MiB where another thread's launch has taken something
  // from a program at work. What is better on the host comes with up to 64 MiB, what is better on the device alone.
  // Pages that the program may only read become writable likewise, by the block, and more where it goes on.
  ToHost to_host(const Touch& touch) const;
  // What the device has of `run` is wanted by the host, all of it or up to what the host has already.
  std::vector<Run> on_device(Run run) const;
  void came_to_host(Run run, bool writable);
  // The device's copy of `run` is gone: what both sides had is the host's, what only it had is nobody's.
  void device_gone(Run run);
  // The bytes of these pages, which are closed to the program, do not count any more.
  void discarded(Run run);
  // A touch is answered: notes for the policies below.
  void touched(const ToHost& answered, const Touch& touch);

  // Thrashing: a thread works on a block while others launch kernels, each of which takes the block away. Until then
  // the launch of another thread should leave it; 0: no need to wait. Grows with each quick return of the block.
  uint64_t keep_until_ns(uint64_t launching_thread) const;
  uint32_t quick_returns() const { return quick_returns_; }

 private:
  struct Stretch {
    Run run;
    Holder holder;
  };
  using Stretches = std::map<uint64_t, Holder>;
  // The longest run of one holder that holds the offset.
  Stretch stretch_at(uint64_t offset) const;
  template <typename Visit>
  void each(Run run, Visit visit) const;
  void set(Run run, Holder holder);
  bool stolen_from(uint64_t thread) const { return taken_ && taken_by_ != thread; }
  Run wanted_around(Run block, bool stolen) const;
  // Answers to touches, each of which went on where the one before ended.
  struct Sequence {
    uint64_t next_offset = ~0ull, last_bytes = 0;
    void answered(Run run) { next_offset = run.end(), last_bytes = run.bytes; }
    bool goes_on(Run block) const { return block.offset == next_offset; }
  };
  // From `block`, with which it goes on, twice as much as the last time.
  Run longer(const Sequence& sequence, Run block) const;

  const uint64_t bytes_, block_bytes_;
  Stretches stretches_;  // by beginning; each ends where the next begins, and neighbours differ
  uint64_t device_bytes_ = 0;
  Sequence brought_, unlocked_;
  uint64_t last_touch_ns_ = 0, last_thread_ = 0;
  uint64_t taken_by_ = 0;  // the thread whose launch took something since the last touch
  bool taken_ = false;
  uint32_t quick_returns_ = 0;
};

}  // namespace bandsaw::managed
