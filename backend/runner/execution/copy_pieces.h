// Issues copies and fills that would keep an engine for longer than a time slice in pieces, each a time slice of its
// own at the gate, so that others get the engine in between. (Kato et al., "Gdev", USENIX ATC 2012, section 4.1, calls
// them split transactions.)
//
// A piece takes about a quantum where the gate is open, half of one where it is closed: there, two of them are in
// flight. To the program it is one copy: while some pieces are not issued yet, records that may depend on it wait
// (Process), and its completion is told when the last piece has ended. Copies within one virtual GPU take turns too.
//
// Not cut: copies that become graph nodes; a row of an array; what a driver stages itself is cut as the rest.
//
// Threads: the record loop calls every method. Pieces end on the device's threads.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>

#include "backend/device/device.h"
#include "backend/runner/execution/gate.h"
#include "backend/runner/execution/launch_id.h"
#include "backend/runner/execution/piece_size.h"
#include "backend/runner/wire/stream_order.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// What a copy or fill is to the gates, or a graph in segments (graph_segments.h).
struct Bulk {
  Engine engine = Engine::kCompute;
  BulkKind kind = BulkKind::kLinear;
  uint64_t bytes = 0;            // of a graph: nodes
  uint64_t segment = 0;          // nodes of a segment; 0: it is no graph
  std::optional<LaunchId> id{};  // of what the compute engine does
};

class CopyPieces {
 public:
  static constexpr uint64_t kUnitBytes = 64 << 10;  // of a copy, to the gate, beside the copy's own cost

  // All arguments outlive this. Pieces on the device may outlive it too.
  CopyPieces(GateView* gate, StreamOrder* order);
  ~CopyPieces();

  // Passes the gate for the work or, if it is to be cut, for its first piece. As GateView::enter.
  bool enter(const Bulk& bulk);
  // The work that entered last is to be cut: call begin() for it rather than put all of it on the stream.
  bool is_cut() const { return cut_; }

  // Cuts pieces off: puts the next one of at most so many bytes on the stream.
  using Issue = std::function<CUresult(uint64_t most, Done done)>;
  struct Work {
    std::shared_ptr<void> ring;  // whose record it was
    uint64_t stream_key = 0;
    Issue issue;
    std::function<uint64_t()> left;  // bytes that are not issued
    Done done;                       // called once, when all that was issued has ended
  };
  // For what has entered: issues the first piece, and the others as the gate lets them. On failure `done` is not
  // called.
  CUresult begin(Work work);

  // Some work has pieces that are not issued yet.
  bool busy() const { return !runs_.empty(); }
  bool holds(const void* ring) const;
  // Issues pieces as the gates allow, one of each copy; true: some were. `turn`: only on engines where others of this
  // process have had theirs; else: only where none of them waits. `sticky`: the process has failed with it, and what is
  // left is dropped.
  bool advance(bool turn, CUresult sticky);
  // If no piece ends for long, the work ahead of them on their stream may wait for what waits behind them: a word to be
  // written, another stream's event. Then their rest is issued without asking at the gate; true: some was, and the gate
  // may have been asked in vain. `others_wait`: something that is not of the stream waits.
  bool free_stalled(const std::function<bool(uint64_t stream_key)>& others_wait);

  // Other work of this process has passed the gate, would pass it next, or does not wait there.
  void others_passed(unsigned engine) { turns_[engine] = {}; }
  void others_want(unsigned engine) { turns_[engine].wanted = true; }
  void nobody_wants() {
    for (Turn& turn : turns_) turn.wanted = false;
  }

  // Some work waits for a gate, not for its own pieces.
  bool at_gate() const;
  // Pieces have ended since the last advance().
  bool moved() const;
  // When free_stalled() is to be called at the latest, even if nothing happens.
  std::chrono::nanoseconds longest_sleep() const;
  // A descriptor that becomes readable when pieces end.
  int wake() const { return wake_->get(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight;
  struct Run {
    Work work;
    Bulk bulk;
    std::shared_ptr<Flight> flight;
  };
  // Whether a piece was the last to pass the gate of an engine, and whether other work waits there.
  struct Turn {
    bool had = false, wanted = false;
  };

  using Runs = std::list<Run>;

  uint64_t piece_bytes(const Bulk& bulk) const;
  uint64_t next_bytes(const Bulk& bulk, uint64_t left) const;
  bool has_room(unsigned engine) const;
  CUresult issue(Run& run, uint64_t most);
  Runs::iterator end(Runs::iterator run, CUresult result);

  GateView& gate_;
  StreamOrder& order_;  // has the streams of runs_
  const std::shared_ptr<UniqueFd> wake_;
  const std::shared_ptr<PieceSize> sizes_ = std::make_shared<PieceSize>();
  // Shared with the device's threads.
  struct Counts {
    std::array<std::atomic<uint32_t>, kEngines> in_flight{};  // pieces on each engine that have not ended
    std::atomic<uint32_t> ended{0};
  };
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  Runs runs_;
  std::array<Turn, kEngines> turns_;
  bool cut_ = false;
  Bulk entered_;             // what entered last
  uint64_t first_ = 0;       // bytes of its first piece
  uint32_t seen_ended_ = 0;  // at the last advance()
  Clock::time_point moved_;  // when a piece was last issued, or a stall looked at
};

}  // namespace bandsaw::runner
