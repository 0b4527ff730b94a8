#include "backend/runner/channels/channel_group_table.h"

#include <algorithm>

namespace bandsaw::runner {

void ChannelGroupTable::made(const ChannelGroup& group) {
  std::lock_guard lock(mutex_);
  if (count_ == groups_.size()) {
    incomplete_ = true;
    return;
  }
  groups_[count_++] = group;
}

bool ChannelGroupTable::freed(uint32_t client, uint32_t object) {
  std::lock_guard lock(mutex_);
  const auto end = groups_.begin() + count_;
  const auto left = std::remove_if(groups_.begin(), end, [&](const ChannelGroup& group) {
    return group.client == client && (object == client || object == group.handle || object == group.parent);
  });
  count_ = static_cast<uint32_t>(left - groups_.begin());
  return left != end;
}

void ChannelGroupTable::give_up() {
  std::lock_guard lock(mutex_);
  incomplete_ = true;
}

ChannelGroupTable::Known ChannelGroupTable::known() const {
  std::lock_guard lock(mutex_);
  Known known;
  if (incomplete_ || count_ == 0) return known;
  const ChannelGroup& first = groups_[0];
  for (uint32_t i = 0; i < count_; ++i) {
    if (groups_[i].client != first.client || groups_[i].descriptor != first.descriptor) return {};
    known.list.handles[i] = groups_[i].handle;
  }
  known.descriptor = first.descriptor;
  known.list.client = first.client;
  known.list.count = count_;
  return known;
}

}  // namespace bandsaw::runner
