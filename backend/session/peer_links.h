// How sessions of one host hand memory and events to each other: what a guest process has published on one virtual GPU
// can be fetched by a process of the same owner on another. Each session listens at RUN/peers.d/INDEX.sock; whoever
// fetches connects. One packet is one PeerMessage; a descriptor comes with kFetched.
//
// Who gets what: a key cannot be guessed, so whoever has it was given it; and both processes must have one owner, which
// each session has from its kernel and says of its own. Sessions know each other by the users that they run as.
//
// Memory that is lent is charged to its owner alone. It is revoked when that one frees it or ends, and when the
// connection ends.
//
// Shared segments go the same way, by name; who gets them is for PeerSegments to say, which knows of each visitor whose
// session it is. Each attachment has a key of its own, by which it is given back or revoked.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "backend/control/event_ptr.h"
#include "backend/session/exchange.h"
#include "memory/base/unique_fd.h"

struct event_base;

namespace bandsaw {

struct PeerLinksConfig {
  std::string run;     // BANDSAW_RUN
  uint32_t index = 0;  // of this virtual GPU
  // What a session's index is added to for its user; -1: all run as this process's user.
  int64_t first_uid = -1;
};

struct PeerAttach {
  bool read_only = false;
  std::array<char, 64> name{};  // with a NUL, or all of it
};

struct PeerSegment {
  ExchangeKey key{};
  uint64_t bytes = 0;
  uint32_t access = 0;
  UniqueFd fd;
};

// The shared segments of this virtual GPU, as other sessions ask for them. `vgpu`: the index of the visitor's virtual
// GPU, by the user that its session runs as. `visitor`: its connection, under a number that is used once.
class PeerSegments {
 public:
  // `error`: 0 or an errno; `fd` is borrowed.
  using PeerAttached = std::function<void(int error, const ExchangeKey& key, uint64_t bytes, uint32_t access, int fd)>;
  virtual ~PeerSegments() = default;
  virtual void attach(uint32_t vgpu, uint64_t visitor, const PeerAttach& wanted, PeerAttached answer) = 0;
  virtual void detach(uint32_t vgpu, uint64_t visitor, const ExchangeKey& key) = 0;
  // It has gone, and holds nothing any more.
  virtual void left(uint32_t vgpu, uint64_t visitor) = 0;
};

// Makes folder and socket. As root, before anything is given up.
Result<UniqueFd> listen_for_peers(const std::string& run, uint32_t index);

// Threads: the event loop's only.
class PeerLinks {
 public:
  // `error`: 0 or an errno. What came is the receiver's.
  using Fetched = std::function<void(int error, Exchange::Thing thing)>;
  using Revoked = std::function<void(const ExchangeKey& key)>;

  // `exchange`: what this session's runners have published; outlives this.
  PeerLinks(event_base* base, UniqueFd listener, PeerLinksConfig config, const Exchange* exchange, Revoked revoked);
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;

  // Of another session, for a process of `owner`. `fetched` is called once, never from inside this call. What was
  // `lent` is revoked later, once.
  void fetch(const ExchangeKey& key, bool lent, const GuestOwner& owner, Fetched fetched);
  // The thing is gone: who has it lent is told.
  void revoke(const ExchangeKey& key);

  // Not owned; outlives this. Before the first visitor comes.
  void offer(PeerSegments* segments) { segments_ = segments; }
  // A segment of the virtual GPU `index`. `attached` is called once, never from inside this call.
  using SegmentAttached = std::function<void(int error, const PeerSegment& given)>;
  void attach(uint32_t index, const PeerAttach& wanted, SegmentAttached attached);
  // Gives one back.
  void detach(const ExchangeKey& key);
  // The visitor is to let go of one.
  void take_back(uint64_t visitor, const ExchangeKey& key);

 private:
  class Visitor;  // another session, which fetches from this one
  class Host;     // another session, from which this one fetches
  void accept();
  bool may_visit(uint32_t index, uid_t user) const;
  Result<Host*> reach(uint32_t index);
  Visitor* visitor(uint64_t number) const;
  void sweep_later();
  void sweep();

  event_base* const base_;
  UniqueFd listener_;
  const PeerLinksConfig config_;
  const Exchange* const exchange_;
  const Revoked revoked_;
  PeerSegments* segments_ = nullptr;
  uint64_t next_visitor_ = 1;
  EventPtr acceptable_, sweep_timer_;
  std::list<std::unique_ptr<Visitor>> visitors_;
  std::map<uint32_t, std::unique_ptr<Host>> hosts_;  // by index
  std::list<std::function<void()>> failed_;          // told by the timer
};

}  // namespace bandsaw
