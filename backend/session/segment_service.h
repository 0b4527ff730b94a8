// What a session does with its runners' requests for shared segments: of its own, or, if another virtual GPU owns them,
// by that one's session. Which there are and who may use them, vgpud says, to both.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/session/peer_links.h"
#include "backend/session/runner.h"
#include "backend/session/segment_host.h"

namespace bandsaw {

// Threads: the event loop's only. Runners live until drop().
class SegmentService : public PeerSegments {
 public:
  // `index`: of this virtual GPU. `host` outlives this.
  SegmentService(uint32_t index, SegmentHost* host);
  // From now on other virtual GPUs' segments are found. Not owned; outlives the runners.
  void connect(PeerLinks* links) { links_ = links; }

  // Of vgpud's "set": [{"id": "...", "name": ..., "bytes": ..., "owner": index, "access": "read" or "write",
  // "grants": [{"vgpu": index, "access": ...}] of this virtual GPU's own}]. EINVAL: it makes no sense, and nothing has
  // changed.
  Status set(const nlohmann::json& segments);

  // One of kSegment*.
  void request(Runner* runner, const RunnerMessage& message, const ExchangeTail& tail);
  // What another session had given is to be let go of. False: it was no segment.
  bool revoked(const ExchangeKey& key);
  // A process of this virtual GPU has one attached.
  bool in_use() const { return !attached_.empty(); }
  // The runner is reaped: so is all that it has attached.
  void drop(Runner* runner);

  // Of other sessions.
  void attach(uint32_t vgpu, uint64_t visitor, const PeerAttach& wanted, PeerAttached answer) override;
  void detach(uint32_t vgpu, uint64_t visitor, const ExchangeKey& key) override;
  void left(uint32_t vgpu, uint64_t visitor) override;

 private:
  // One that another virtual GPU owns.
  struct Foreign {
    uint64_t id = 0, bytes = 0;
    uint32_t owner = 0;
    segment::Access access = segment::Access::kNone;
  };
  struct Attached {
    Runner* runner = nullptr;
    bool foreign = false;
    uint64_t segment = 0;  // of a foreign one
    segment::Access access = segment::Access::kNone;
  };
  using Foreigns = std::map<std::string, Foreign>;

  void get(Runner* runner, const RunnerMessage& message, const std::string& name);
  void attach_own(Runner* runner, const RunnerMessage& message, const std::string& name);
  void attach_foreign(Runner* runner, const RunnerMessage& message, const std::string& name, const Foreign& foreign);
  void detach_for(Runner* runner, const ExchangeKey& key);
  void tell_revoked(Runner* runner, const ExchangeKey& key);
  void review();
  segment::User user_of(Runner* runner);
  bool is_there(Runner* runner, uint64_t number) const;

  const uint32_t index_;
  SegmentHost* const host_;
  PeerLinks* links_ = nullptr;
  Foreigns foreign_;                     // by name
  std::map<Runner*, uint64_t> runners_;  // under a number that is used once
  std::map<ExchangeKey, Attached> attached_;
  uint64_t next_user_ = 1;
};

}  // namespace bandsaw
