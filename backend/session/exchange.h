// What guest processes of one virtual GPU hand to each other: memory and events, published by one runner and fetched by
// others by a key that nobody can guess. Each session has its own, so a key of another virtual GPU means nothing here.
#pragma once

#include <cstdint>
#include <map>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Threads: the event loop's only.
class Exchange {
 public:
  static constexpr size_t kThingsMost = 1024;  // of one owner

  using Owner = const void*;
  struct Thing {
    Owner owner = nullptr;
    UniqueFd fd;  // may be empty
    uint64_t bytes = 0;
    std::array<uint8_t, 64> payload{};
  };

  // An error: this owner has published too much.
  Result<ExchangeKey> publish(Thing thing);
  // nullptr: no such thing. Valid until the next call of another member.
  const Thing* find(const ExchangeKey& key) const;
  // Only the owner of a thing can withdraw it.
  void withdraw(Owner owner, const ExchangeKey& key);
  // All that an owner has published.
  void drop(Owner owner);
  size_t size() const { return things_.size(); }

 private:
  std::map<ExchangeKey, Thing> things_;
  std::map<Owner, size_t> counts_;
};

}  // namespace bandsaw
