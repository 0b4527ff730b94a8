// What a session does with its runners' requests to publish and fetch: from its own exchange, or, if the key is another
// virtual GPU's, from that one's session.
#pragma once

#include <map>
#include <set>

#include "backend/session/exchange.h"
#include "backend/session/peer_links.h"
#include "backend/session/runner.h"

namespace bandsaw {

// kExchanged, which answers `request`; `error`: an errno. `fd` is duplicated.
void answer_exchange(Runner* runner, const RunnerMessage& request, int error, const ExchangeTail& tail,
                     uint64_t bytes = 0, int fd = -1);

// Threads: the event loop's only. Runners live until drop().
class ExchangeService {
 public:
  explicit ExchangeService(uint32_t index);

  // From now on other virtual GPUs' things are found, and others find this one's. Not owned; outlives the runners.
  void connect(PeerLinks* links) { links_ = links; }
  const Exchange& exchange() const { return exchange_; }

  // kPublish, kFetch or kWithdraw, of a process of `owner`.
  void request(Runner* runner, const GuestOwner& owner, const RunnerMessage& message, const ExchangeTail& tail,
               UniqueFd fd);
  // What another session had lent is gone.
  void revoked(const ExchangeKey& key);
  // How many runners have something that others may use, or something of others'.
  size_t sharing() const;
  bool shares(const Runner& runner) const;
  // The runner is reaped: so is all that it has published.
  void drop(Runner* runner);

 private:
  void fetch(Runner* runner, const GuestOwner& owner, const RunnerMessage& message, const ExchangeKey& key);
  void fetched(Runner* runner, uint64_t visit, const RunnerMessage& message, const ExchangeKey& key, int error,
               Exchange::Thing thing);

  const uint32_t index_;
  Exchange exchange_;
  PeerLinks* links_ = nullptr;
  uint64_t next_visit_ = 1;
  std::map<Runner*, uint64_t> visits_;                  // who is served, under a number that is used once
  std::map<ExchangeKey, std::set<Runner*>> borrowers_;  // of what other sessions have lent
  std::set<Runner*> openers_;                           // of what others of this virtual GPU, or other sessions, have
};

}  // namespace bandsaw
