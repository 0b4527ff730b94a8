// A cache of lines with the misses that are on their way (MSHRs). A miss takes a way of its set at once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backend/device/soft/timing/machine.h"

namespace bandsaw::soft::timing {

enum class Access : uint8_t {
  kHit,
  kMerged,   // misses that are on their way bring it
  kMiss,     // the caller asks for it
  kRefused,  // no MSHR, no room in one, or no way that is free
};

class Cache {
 public:
  Cache(const CacheShape& shape, uint32_t misses, uint32_t merged)
      : shape_(shape), sets_(shape.sets()), misses_most_(misses), merged_most_(merged), lines_(sets_ * shape.ways) {}

  // `line`: an address of kLineBytes; `sectors`: of it, those that are wanted. `waiter` is what fill() returns later
  // for merged accesses and misses. `*evicted`: the address of a changed line that a miss displaced, or 0.
  Access read(uint64_t line, uint32_t sectors, uint64_t waiter, uint64_t* evicted);
  // Whether read() would be a hit or be merged with a miss that is on its way, if that has room.
  bool knows(uint64_t line, uint32_t sectors) const { return holds(line, sectors) || pending_.contains(line); }
  // Writes all of the sectors: they are there afterwards. false: no way is free.
  bool write(uint64_t line, uint32_t sectors, uint64_t* evicted);
  // All of it is there afterwards, as it is in memory, if a way is free.
  void bring(uint64_t line, uint64_t* evicted);
  bool holds(uint64_t line, uint32_t sectors) const;
  uint64_t displaced() const { return displaced_; }  // by the last read(), changed or not; 0: nothing
  void drop(uint64_t line);                          // unless it is on its way
  // What a miss had to bring has come: who has all that it waited for, in their order.
  std::vector<uint64_t> fill(uint64_t line, uint32_t sectors);
  // What the last miss has to bring.
  uint32_t wanted() const { return wanted_; }
  uint32_t on_their_way() const { return static_cast<uint32_t>(pending_.size()); }

 private:
  struct Line {
    uint64_t address = 0;
    uint32_t valid = 0, awaited = 0;  // sectors
    bool changed = false;
    uint64_t used = 0;
  };
  struct Waiter {
    uint64_t waiter;
    uint32_t sectors;
  };
  struct Miss {
    Line* line;
    std::vector<Waiter> waiters;
  };
  Line* find(uint64_t line);
  const Line* find(uint64_t line) const;
  Line* victim(uint64_t line);
  Line* replace(uint64_t line, uint64_t* evicted);
  Access join(Miss* miss, uint32_t sectors, uint64_t waiter);
  size_t set_of(uint64_t line) const;

  const CacheShape shape_;
  const uint32_t sets_, misses_most_, merged_most_;
  std::vector<Line> lines_;
  std::unordered_map<uint64_t, Miss> pending_;
  uint64_t clock_ = 0, displaced_ = 0;
  uint32_t wanted_ = 0;
};

}  // namespace bandsaw::soft::timing
