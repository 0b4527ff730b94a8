// One SM, cycle by cycle: instructions are fetched for warps, schedulers issue them, the load/store unit does their
// accesses. Blocks stay until all of their warps have ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/device/soft/timing/cursor.h"
#include "backend/device/soft/timing/load_store.h"
#include "backend/device/soft/timing/program_points.h"
#include "backend/device/soft/timing/throttle.h"
#include "backend/device/soft/timing/warp_policy.h"

namespace bandsaw::soft::timing {

// Why a scheduler with warps did not issue in a cycle, as Park's 3.2.2 has it: the first of these that holds one up.
struct Stalls {
  uint64_t conflict = 0;    // the load/store unit takes nothing more
  uint64_t dependency = 0;  // operands come from memory
  uint64_t fetch = 0;       // instructions do
  uint64_t barrier = 0;
  uint64_t other = 0;  // other operands and units
};

struct SmCounts {
  uint64_t instructions = 0, thread_instructions = 0;
  Stalls stalls;
  uint64_t empty = 0;     // cycles of schedulers without a warp
  uint64_t look_ups = 0;  // of distances by ELF's calculator
  uint64_t fetches = 0, fetch_hits = 0, prefetches = 0;
};

// What is scheduled by what.
struct Scheduling {
  std::string policy = "gto";
  uint32_t requeue_slots = 0;  // of NewCAR; 0: accesses that L1 refuses block the load/store unit
  uint32_t prefetch_threshold =
      0;  // the next line of code is fetched too while fewer misses are on their way; 0: never
  uint32_t point_slots = kPointSlots;
};

class Sm {
 public:
  // All must outlive it.
  Sm(const Machine& machine, const Scheduling& scheduling, const LaunchTrace& launch, const Code& code,
     const ProgramPoints& points, uint32_t number, uint32_t block_slots, MemorySystem* memory);

  bool has_room() const { return blocks_ < (limit_ ? limit_->limit() : block_slots_); }
  void begin_block(std::span<const WarpTrace> warps);
  void step(uint64_t now);
  bool idle() const { return blocks_ == 0; }
  const SmCounts& counts() const { return counts_; }
  const LoadStoreCounts& accesses() const { return load_store_.counts(); }

 private:
  static constexpr uint64_t kFromMemory = UINT64_MAX;
  enum class Hold : uint8_t { kNone, kConflict, kDependency, kFetch, kBarrier, kThrottled, kOther };
  struct Block {
    uint64_t age = 0;
    uint32_t warps = 0, living = 0;        // that have not left; of which not at their end
    std::map<uint32_t, uint32_t> arrived;  // warps, by barrier
  };
  struct Warp {
    Cursor cursor;
    uint64_t age = 0;
    uint32_t block = 0;
    bool there = false, ended = false;
    uint32_t buffered = 0;     // instructions
    uint64_t usable_at = 0;    // those
    uint64_t fetch_from = 0;   // when more of them may be fetched
    bool awaits_code = false;  // a miss of L1I is on its way
    int32_t barrier = -1;
    uint64_t held_until = 0;                 // after one
    uint32_t distance = 0, outstanding = 0;  // accesses that it waits for the end of
    std::vector<uint64_t> ready;             // by register: when it may be read
  };
  struct Scheduler {
    std::unique_ptr<WarpPolicy> policy;
    std::vector<uint32_t> slots;
    uint64_t special_free = 0, double_free = 0, matrix_free = 0;
  };

  void take_answers(uint64_t now);
  void end_access(uint64_t tag, uint64_t now);
  Hold hold(const Warp& warp, const Scheduler& scheduler, uint64_t now) const;
  void schedule(Scheduler* scheduler, uint64_t now);
  void count_stall(const std::vector<Hold>& holds);
  void limit_blocks();
  bool stands_still(const Warp& warp) const;
  void issue(Warp* warp, Scheduler* scheduler, uint64_t now);
  void execute(Warp* warp, Scheduler* scheduler, uint64_t now);
  void push_access(Warp* warp, uint64_t now);
  void advance(Warp* warp, uint64_t now);
  void arrive(Warp* warp, const Instruction& at, uint64_t now);
  void pass_barrier(Warp* warp, uint64_t now) const;
  void release(uint32_t block, uint64_t now);
  void end_if_done(Warp* warp, uint64_t now);
  void fetch(uint64_t now);
  void fetch_for(Warp* warp, uint64_t now);
  void prefetch(uint64_t line);
  uint32_t slot_of(const Warp& warp) const { return static_cast<uint32_t>(&warp - warps_.data()); }

  const Machine machine_;
  const Scheduling scheduling_;
  const LaunchTrace& launch_;
  const Code& code_;
  const ProgramPoints& points_;
  const uint32_t number_, block_slots_;
  MemorySystem* const memory_;
  std::optional<LostLocality> lost_;                  // CCWS
  std::optional<BlockLimit> limit_;                   // DYNCTA
  uint64_t newest_age_ = UINT64_MAX;                  // of a block that runs
  bool issued_ = false, all_wait_for_memory_ = true;  // in this cycle
  LoadStoreUnit load_store_;
  Cache l1i_;
  std::vector<Warp> warps_;
  std::vector<Block> block_states_;  // by slot; without warps: free
  std::vector<Scheduler> schedulers_;
  std::vector<std::unique_ptr<WarpPolicy>> fetch_policies_;  // by scheduler
  struct Loaded {
    uint32_t slot;
    const std::vector<uint32_t>* registers;
  };
  std::map<uint64_t, Loaded> loads_;  // by tag
  uint64_t next_age_ = 0, next_block_age_ = 0, next_tag_ = 0;
  uint32_t blocks_ = 0;
  SmCounts counts_;
  std::vector<WarpView> views_;  // kept for their memory, as the next
  std::vector<Hold> holds_;
  std::vector<uint64_t> block_ages_;
  std::vector<uint64_t> ended_;
};

}  // namespace bandsaw::soft::timing
