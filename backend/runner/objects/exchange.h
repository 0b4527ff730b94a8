// The runner's side of what guest processes hand to each other (backend/session/exchange.h).
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// Thread-safe. Callbacks come from the thread that serves the session, once each; what is under way when the session
// goes is never answered.
class ExchangeClient {
 public:
  struct Thing {
    UniqueFd fd;  // may be empty
    uint64_t bytes = 0;
    ExchangeTail tail;
  };
  using Done = std::function<void(int error, Thing thing)>;

  // The link, not owned. Before the first call of another member.
  void connect(int socket) { socket_ = socket; }
  // `done` gets the key.
  void publish(Thing thing, Done done);
  // `lent`: another virtual GPU's memory, which that one is charged for, until it is revoked.
  void fetch(const ExchangeKey& key, bool lent, Done done);
  void withdraw(const ExchangeKey& key);

  // Shared segments, by name: kSegmentGet, kSegmentAttach, kSegmentRemove (backend/control/runner_link.h). `name` has
  // at most 63 bytes.
  void ask_segment(RunnerMessageType what, std::string_view name, uint64_t bytes, uint32_t flags, Done done);
  void detach_segment(const ExchangeKey& key);

  // kCheckpoint, of the process of this number. `done` gets its state in `bytes`.
  void ask_checkpoint(uint32_t action, uint32_t pid, uint64_t timeout_ms, Done done);

  // Called when what was lent or attached by this key is to be let go of, which has happened when it returns; by the
  // thread that serves the session. Set before the first fetch.
  using Revoked = std::function<void(const ExchangeKey& key)>;
  void set_on_revoked(Revoked revoked) { on_revoked_ = std::move(revoked); }

  // The session's kRevoked and kExchanged.
  Status revoked(std::span<const std::byte> tail) const;
  void answered(const RunnerMessage& message, std::span<const std::byte> tail, std::vector<UniqueFd> fds);

 private:
  void ask(RunnerMessage message, const Thing& thing, Done done);
  bool send(const RunnerMessage& message, const Thing& thing) const;

  int socket_ = -1;
  Revoked on_revoked_;
  std::mutex mutex_;
  std::map<uint32_t, Done> under_way_;  // guarded by mutex_, by request number
  uint32_t next_ = 1;                   // guarded by mutex_
};

}  // namespace bandsaw::runner
