// The channel groups of a runner that the driver still knows. A context that goes takes its group along; the others'
// time slices are set as before.
//
// Threads: any, several at once.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "backend/control/channel_groups.h"
#include "memory/base/status.h"

namespace bandsaw {

class LivingGroups {
 public:
  explicit LivingGroups(const ChannelGroupList& list) : list_(list) {}

  // Calls `call` with the handle of each. One for which it returns ESRCH counts as gone from now on. Returns the first
  // other error after all were tried, or ESRCH if none is left.
  template <typename Call>
  Status for_each(const Call& call) const {
    Status first;
    bool any = false;
    for (uint32_t i = 0; i < list_.count; ++i) {
      const uint64_t bit = uint64_t{1} << i;
      if (gone_ & bit) continue;
      Status status = call(list_.handles[i]);
      if (status.code() == ESRCH) {
        gone_ |= bit;
        continue;
      }
      any = true;
      if (first.ok() && !status.ok()) first = std::move(status);
    }
    return any ? first : Status::error(ESRCH, "the driver knows none of the {} channel groups any more", list_.count);
  }

 private:
  static_assert(kChannelGroupsMax <= 64);
  const ChannelGroupList list_;
  mutable std::atomic<uint64_t> gone_{0};  // a bit for each
};

}  // namespace bandsaw
