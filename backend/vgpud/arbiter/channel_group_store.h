// The channel groups that sessions have handed over, by session and slot, and whether their runners still live.
//
// Threads: as the arbiter's core, under its mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "backend/vgpud/arbiter/channel_groups.h"
#include "backend/vgpud/arbiter/time_slice_setter.h"

namespace bandsaw {

class ChannelGroupStore {
 public:
  // Both outlive this. What is dropped goes to the setter, which lets go of it.
  ChannelGroupStore(int poll, TimeSliceSetter* setter) : poll_(poll), setter_(setter) {}

  // Replaces what was there. `process`, a pidfd of the runner, is watched in the poll with the tag `event`.
  Status put(uint32_t session, uint32_t slot, std::shared_ptr<const ChannelGroups> groups, UniqueFd&& process,
             uint64_t event);
  // True: there was something.
  bool drop(uint32_t session, uint32_t slot);
  void drop_all(uint32_t session);
  // Null: nothing.
  TimeSliceSetter::Target find(uint32_t session, uint32_t slot) const;
  // The runner whose groups are there has ended. An event may be older than what is there now.
  bool ended(uint32_t session, uint32_t slot) const;

 private:
  struct Entry {
    std::shared_ptr<const ChannelGroups> groups;
    UniqueFd process;
  };
  using Key = std::pair<uint32_t, uint32_t>;
  void release(Entry entry);

  const int poll_;
  TimeSliceSetter* const setter_;
  std::map<Key, Entry> entries_;
};

}  // namespace bandsaw
