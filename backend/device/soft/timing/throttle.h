// What an SM leaves undone for a while so that its L1 cache serves the rest better: loads of some warps, or whole
// blocks. Both only hold back; who issues among the others is the warp policy's choice (greedy then oldest).
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace bandsaw::soft::timing {

// CCWS: a warp whose lines others have displaced before it read them again has a higher score, and the more the scores
// of these add up to, the fewer of the other warps may load. Source: Rogers, O'Connor and Aamodt, "Cache-Conscious
// Wavefront Scheduling" (MICRO 2012), sections 3.3 and 4, with its values.
class LostLocality {
 public:
  explicit LostLocality(uint32_t slots);

  void begin_warp(uint32_t slot, uint64_t age);
  void end_warp(uint32_t slot);
  void issued() { ++issued_; }
  // A load of `slot` missed; its line takes the place of `displaced`, unless that is 0.
  void missed(uint32_t slot, uint64_t line, uint64_t displaced);
  void dropped(uint64_t line) { owners_.erase(line); }  // by a store
  // Once a cycle.
  void step();
  bool may_load(uint32_t slot) const { return warps_[slot].may_load; }

 private:
  struct Warp {
    bool there = false, may_load = true;
    uint64_t age = 0;
    uint64_t score = 0;
    std::vector<std::deque<uint64_t>> victims;  // by set: lines, the newest last
  };
  void displace(uint64_t line);
  bool take_victim(Warp* warp, uint64_t line);
  uint64_t budget() const;

  std::vector<Warp> warps_;
  std::unordered_map<uint64_t, uint32_t> owners_;  // of lines in the cache: who brought them
  uint64_t issued_ = 0, lost_ = 0, living_ = 0;
  std::vector<uint32_t> order_;  // kept for its memory
};

// DYNCTA: how many blocks of an SM run, by how it spent its last cycles; the newest of more than these stand still.
// Source: Kayiran, Jog, Kandemir and Das, "Neither More Nor Less" (PACT 2013), section 4, with its values. A cycle
// counts as one of memory here if nothing was issued and all running warps wait for memory or for the load/store unit;
// as idle if nothing was issued for other reasons too.
class BlockLimit {
 public:
  explicit BlockLimit(uint32_t most);

  enum class Cycle : uint8_t { kBusy, kIdle, kMemory };
  void step(Cycle cycle);
  uint32_t limit() const { return limit_; }

 private:
  const uint32_t most_;
  uint32_t limit_;
  uint32_t cycles_ = 0, idle_ = 0, memory_ = 0;
};

}  // namespace bandsaw::soft::timing
