#include "backend/vgpud/arbiter/channel_group_store.h"

#include <poll.h>
#include <sys/epoll.h>

namespace bandsaw {

Status ChannelGroupStore::put(uint32_t session, uint32_t slot, std::shared_ptr<const ChannelGroups> groups,
                              UniqueFd&& process, uint64_t event) {
  drop(session, slot);
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = event}};
  Status status;
  if (::epoll_ctl(poll_, EPOLL_CTL_ADD, process.get(), &wanted) != 0) status = Status::system("watching a runner");
  if (status.ok()) {
    entries_[{session, slot}] = {std::move(groups), std::move(process)};
  } else {
    setter_->release(std::move(groups));
  }
  return status;
}

// The session holds the runner's pidfd too, so closing ours would not take it out of the poll.
void ChannelGroupStore::release(Entry entry) {
  ::epoll_ctl(poll_, EPOLL_CTL_DEL, entry.process.get(), nullptr);
  setter_->release(std::move(entry.groups));
}

bool ChannelGroupStore::drop(uint32_t session, uint32_t slot) {
  auto found = entries_.extract({session, slot});
  if (found.empty()) return false;
  release(std::move(found.mapped()));
  return true;
}

void ChannelGroupStore::drop_all(uint32_t session) {
  for (auto entry = entries_.lower_bound({session, 0}); entry != entries_.end() && entry->first.first == session;) {
    release(std::move(entry->second));
    entry = entries_.erase(entry);
  }
}

TimeSliceSetter::Target ChannelGroupStore::find(uint32_t session, uint32_t slot) const {
  const auto found = entries_.find({session, slot});
  return found == entries_.end() ? nullptr : found->second.groups;
}

bool ChannelGroupStore::ended(uint32_t session, uint32_t slot) const {
  const auto found = entries_.find({session, slot});
  if (found == entries_.end()) return false;
  pollfd process{.fd = found->second.process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&process, 1, 0) > 0;
}

}  // namespace bandsaw
