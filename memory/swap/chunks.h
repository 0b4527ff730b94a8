// Which chunks of device memory lie on the device, and which are to move so that the next work finds there what it
// needs. Tables only: no clock, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace bandsaw::swap {

// Not thread-safe. A chunk is named by its address.
class Chunks {
 public:
  struct Chunk {
    uint64_t allocation = 0;  // where the allocation begins that it is a part of
    uint64_t bytes = 0;
    bool on_device = true;
    bool pinned = false;   // it does not move
    uint64_t used_ns = 0;  // when work was last issued that may reach it
    uint64_t gone_ns = 0;  // when it last left the device
    uint32_t returns = 0;  // how often in a row it came back within kQuickReturnNs
    bool apart = false;    // it is away, and nothing is at its address
  };
  // Back within this time, a chunk should not have gone.
  static constexpr uint64_t kQuickReturnNs = 1'000'000'000;

  void add(uint64_t address, const Chunk& chunk);
  void remove(uint64_t address);
  void pin(uint64_t address);
  // It has moved. Does nothing where it has gone meanwhile.
  void moved(uint64_t address, bool to_device, uint64_t now_ns, bool apart = false);
  // They can be reached at their addresses.
  void reached(const std::vector<uint64_t>& chunks);
  bool any_apart() const { return apart_ != 0; }
  // Those of them that cannot, each once; of all.
  std::vector<uint64_t> apart(const std::vector<uint64_t>& of) const;
  std::vector<uint64_t> apart() const;
  const Chunk* find(uint64_t address) const;
  bool empty() const { return chunks_.empty(); }
  // Bytes on the device that may leave it.
  uint64_t movable() const { return movable_; }

  // Adds the chunks of the allocation that `address` lies in: who has an address in it may reach all of it.
  void reach_allocation(uint64_t address, std::vector<uint64_t>* chunks) const;
  // Adds the chunks that [address, address + bytes) lies in.
  void reach_range(uint64_t address, uint64_t bytes, std::vector<uint64_t>* chunks) const;
  void used(const std::vector<uint64_t>& chunks, uint64_t now_ns);

  // In this order: what goes, then what comes.
  struct Plan {
    std::vector<uint64_t> out, in;
    bool empty() const { return out.empty() && in.empty(); }
  };
  // Brings as much of `wanted` to the device as there is room for beside the rest of it. `room`: bytes that may come
  // without that anything goes. What finds no room stays where it is: work reaches it there too.
  Plan bring(const std::vector<uint64_t>& wanted, uint64_t room) const;
  // Adds to a plan of bring() what comes back too, where that has left room: what was in use before, first what was
  // used least recently, because a program that goes round needs that first; no more than `most` chunks in all. `room`:
  // as there.
  void bring_back(uint64_t room, size_t most, Plan* plan) const;
  // When those of them that are away were last used, the last one. 0: none is away, or one never was.
  uint64_t last_use(const std::vector<uint64_t>& chunks) const;
  // Whether `chunks` are what is away and was used first after `since`: so that a program which goes round needs them
  // after what it last used then.
  bool follows(const std::vector<uint64_t>& chunks, uint64_t since) const;
  // Adds to a plan of bring() for `wanted` up to `most` chunks that follow what was used at `since`, in place of what
  // was not used since then, and of what was used most recently, which a program that goes round needs last. `room`: as
  // there.
  void bring_ahead(const std::vector<uint64_t>& wanted, uint64_t since, uint64_t room, size_t most, Plan* plan) const;
  // Who goes so that `bytes` bytes may come. Empty if there is the room, or if all that may go is not enough.
  Plan make_room(uint64_t bytes, uint64_t room) const;
  // Who goes so that `bytes` bytes less are on the device, or as many as may, but no more than `most` chunks.
  Plan make_way(uint64_t bytes, size_t most) const;
  // Bytes of these that are not on the device and may come there.
  uint64_t away(const std::vector<uint64_t>& chunks) const;

 private:
  std::vector<uint64_t> victims(const std::vector<uint64_t>& wanted) const;
  std::vector<uint64_t> away_in_order(const std::set<uint64_t>& but, uint64_t since) const;
  static uint64_t movable(const Chunk& chunk) { return chunk.on_device && !chunk.pinned ? chunk.bytes : 0; }
  std::map<uint64_t, Chunk> chunks_;
  uint64_t movable_ = 0;
  size_t apart_ = 0;  // chunks
};

}  // namespace bandsaw::swap
