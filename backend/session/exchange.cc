#include "backend/session/exchange.h"

#include <sys/random.h>

namespace bandsaw {

Result<ExchangeKey> Exchange::publish(Thing thing) {
  size_t& count = counts_[thing.owner];
  if (count >= kThingsMost) return Status::error(ENOSPC, "a process has published {} things", count);
  ExchangeKey key;
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return Status::system("no random number for a key");
  }
  if (!things_.try_emplace(key, std::move(thing)).second) return Status::error(EEXIST, "a key came twice");
  ++count;
  return key;
}

const Exchange::Thing* Exchange::find(const ExchangeKey& key) const {
  const auto found = things_.find(key);
  return found == things_.end() ? nullptr : &found->second;
}

void Exchange::withdraw(Owner owner, const ExchangeKey& key) {
  const auto found = things_.find(key);
  if (found == things_.end() || found->second.owner != owner) return;
  things_.erase(found);
  --counts_[owner];
}

void Exchange::drop(Owner owner) {
  std::erase_if(things_, [owner](const auto& entry) { return entry.second.owner == owner; });
  counts_.erase(owner);
}

}  // namespace bandsaw
