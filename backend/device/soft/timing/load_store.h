// The load/store unit of an SM with its L1 cache: takes instructions' accesses in their order, a line or a turn of the
// banks each cycle. On request accesses that L1 refuses go to a queue, from which they are tried again (NewCAR; Park,
// 3.3.4), and others pass them.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "backend/device/soft/timing/cache.h"
#include "backend/device/soft/timing/cursor.h"
#include "backend/device/soft/timing/memory_system.h"
#include "backend/device/soft/timing/throttle.h"

namespace bandsaw::soft::timing {

struct LoadStoreCounts {
  uint64_t l1_reads = 0, l1_hits = 0, refused = 0, requeued = 0, bank_turns = 0;
};

class LoadStoreUnit {
 public:
  // `lost` is told of misses, if there is one.
  LoadStoreUnit(const Machine& machine, uint32_t sm, uint32_t requeue_slots, MemorySystem* memory, LostLocality* lost);

  bool accepts() const { return queue_.size() < machine_.access_queue; }
  // `tag` comes back from step() when all that the access reads is there; of a store when it is on its way.
  void push(uint32_t warp, Kind kind, const Cursor::Access& access, uint64_t tag);
  // Tags of accesses that have ended.
  void step(uint64_t now, std::vector<uint64_t>* ended);
  void arrived(const MemoryRequest& answer, std::vector<uint64_t>* ended);  // data and atomics
  bool idle() const { return queue_.empty() && requeued_.empty() && running_.empty(); }
  uint32_t misses() const { return l1d_.on_their_way(); }
  const LoadStoreCounts& counts() const { return counts_; }

 private:
  struct Queued {
    uint32_t warp;
    Kind kind;
    Cursor::Access access;
    size_t next = 0;  // line
    uint32_t running;
  };
  struct Running {  // an instruction
    uint64_t tag;
    uint32_t left;  // lines, or one for the banks
  };
  struct Line {
    uint32_t warp;
    Kind kind;
    uint64_t line;
    uint32_t sectors, running;
  };
  struct Later {
    uint64_t at;
    uint32_t running;
  };

  void step_queue(uint64_t now);
  void step_line(Queued* head, uint64_t now);
  bool must_wait(const Line& line, size_t before) const;
  bool try_line(const Line& line, uint64_t now);
  bool try_read(const Line& line, uint64_t now);
  void step_requeued(uint64_t now);
  void count_down(uint32_t running, std::vector<uint64_t>* ended);

  const Machine machine_;
  const uint32_t sm_, requeue_slots_;
  MemorySystem* const memory_;
  LostLocality* const lost_;
  Cache l1d_;
  std::deque<Queued> queue_;
  std::deque<Line> requeued_;
  size_t turn_ = 0;  // which of these is tried next
  std::deque<Later> hits_, shared_;
  std::unordered_map<uint32_t, Running> running_;
  uint32_t next_running_ = 0;
  LoadStoreCounts counts_;
};

}  // namespace bandsaw::soft::timing
