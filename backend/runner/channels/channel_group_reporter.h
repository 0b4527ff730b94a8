// Tells the session which channel groups this runner has (kChannelGroups in backend/control/runner_link.h).
#pragma once

#include <mutex>
#include <optional>

#include "backend/runner/channels/channel_group_table.h"

namespace bandsaw::runner {

class ChannelGroupReporter {
 public:
  // `socket` and `table` outlive this. No table: nothing is known of this runner, now or later.
  ChannelGroupReporter(int socket, const ChannelGroupTable* table) : socket_(socket), table_(table) {}

  // Says what the table knows, if that is not what was said last. Any thread.
  void report();
  // Also if that was said last: the session has forgotten it.
  void report_again();

 private:
  const int socket_;
  const ChannelGroupTable* const table_;
  std::mutex mutex_;                           // held while a message is sent, so that the last one is the newest
  std::optional<ChannelGroupList> last_said_;  // guarded by mutex_
};

}  // namespace bandsaw::runner
