// The compute channel groups that libcuda has made in this process, as far as its calls to the kernel driver show them.
//
// Threads: any. Allocates nothing, so that libcuda's calls may pass through here; constant-initialised, since they may
// come before main.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "backend/control/channel_groups.h"

namespace bandsaw::runner {

struct ChannelGroup {
  int descriptor = -1;  // of /dev/nvidiactl, through which it was made
  uint32_t client = 0, parent = 0, handle = 0;
};

class ChannelGroupTable {
 public:
  constexpr ChannelGroupTable() = default;

  void made(const ChannelGroup& group);
  // The client has given up an object, or (where the object is the client) all that it had. True: a group was among it.
  bool freed(uint32_t client, uint32_t object);
  // From now on nothing is known: something has happened that this does not understand.
  void give_up();

  struct Known {
    int descriptor = -1;  // -1 where the list is empty
    ChannelGroupList list;
  };
  // Empty, too, where not all groups can be said: there are more than kChannelGroupsMax, or several clients have some.
  Known known() const;

 private:
  mutable std::mutex mutex_;
  std::array<ChannelGroup, kChannelGroupsMax> groups_{};  // guarded by mutex_, as the rest
  uint32_t count_ = 0;
  bool incomplete_ = false;
};

}  // namespace bandsaw::runner
