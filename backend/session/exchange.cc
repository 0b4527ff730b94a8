#include "backend/session/exchange.h"

#include <sys/random.h>

#include <vector>

namespace bandsaw {

Result<ExchangeKey> Exchange::publish(Thing thing) {
  size_t& count = counts_[thing.owner];
  if (count >= kThingsMost) return Status::error(ENOSPC, "a process has published {} things", count);
  ExchangeKey key;
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return Status::system("no random number for a key");
  }
  for (size_t i = 0; i < 4; ++i) key[i] = static_cast<uint8_t>(index_ >> 8 * i);
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
  if (on_gone_) on_gone_(key);
}

void Exchange::drop(Owner owner) {
  std::vector<ExchangeKey> gone;
  for (const auto& [key, thing] : things_) {
    if (thing.owner == owner) gone.push_back(key);
  }
  for (const ExchangeKey& key : gone) withdraw(owner, key);
  counts_.erase(owner);
}

}  // namespace bandsaw
