#include "backend/runner/channels/channel_group_reporter.h"

#include "backend/control/packet.h"
#include "backend/control/runner_link.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

void ChannelGroupReporter::report() {
  std::lock_guard lock(mutex_);
  ChannelGroupTable::Known known;
  if (table_) known = table_->known();
  if (last_said_ == known.list) return;
  last_said_ = known.list;
  const RunnerMessage message{.type = RunnerMessageType::kChannelGroups};
  const size_t fds = known.list.count > 0 ? 1 : 0;
  const Status status = send_packet(socket_, std::as_bytes(std::span(&message, 1)),
                                    std::as_bytes(std::span(&known.list, 1)), {&known.descriptor, fds});
  if (!status.ok()) log::warn("cannot tell the session of {} channel groups: {}", known.list.count, status.message());
}

void ChannelGroupReporter::report_again() {
  {
    std::lock_guard lock(mutex_);
    last_said_.reset();
  }
  report();
}

}  // namespace bandsaw::runner
