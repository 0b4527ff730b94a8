#include "backend/session/peer_links.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "backend/control/json_link.h"
#include "backend/control/packet.h"
#include "backend/control/paths.h"
#include "backend/session/packet_queue.h"
#include "memory/base/log.h"

namespace bandsaw {

enum class PeerMessageType : uint32_t {
  kHello = 1,  // who connects; the first message
  kFetch,      // id, key, lent, owner
  kFetched,    // id, error; bytes, payload, descriptor
  kRevoked,    // key
  kAttach,     // id, lent: for reading alone; payload: the segment's name. Answered by kFetched, lent: the access
  kDetach,     // key
};

struct PeerMessage {
  PeerMessageType type{};
  uint32_t id = 0;  // of the request; of kHello: the session's index
  uint32_t lent = 0;
  uint32_t error = 0;  // 0 or an errno
  GuestOwner owner{};
  uint64_t bytes = 0;
  ExchangeKey key{};
  std::array<uint8_t, 64> payload{};
};

namespace {

constexpr size_t kVisitorsMost = 1024;
constexpr int64_t kIndexMost = 1 << 16;
constexpr size_t kFetchesMost = 1024;  // unanswered, of one connection

std::span<const std::byte> bytes_of(const PeerMessage& message) { return std::as_bytes(std::span(&message, 1)); }

// EAGAIN: nothing has come. Any other error: the connection is of no use any more.
Status receive(int socket, PeerMessage* message, UniqueFd* fd) {
  std::vector<UniqueFd> fds;
  const auto length = receive_packet(socket, std::as_writable_bytes(std::span(message, 1)), &fds);
  if (!length.ok()) return length.status();
  if (length.value() == 0) return Status::error(EPIPE, "the other session has gone");
  if (length.value() != sizeof *message || fds.size() > 1) return Status::error(EPROTO, "no message of a session");
  if (!fds.empty()) *fd = std::move(fds[0]);
  return {};
}

}  // namespace

Result<UniqueFd> listen_for_peers(const std::string& run, uint32_t index) {
  const std::string folder = peer_folder(run);
  if (Status status = make_folder(folder, 0755); !status.ok()) return status;
  return listen_unix(peer_socket(run, index), SOCK_SEQPACKET, 0666);  // who may say what: PeerLinks::may_visit
}

class PeerLinks::Visitor {
 public:
  Visitor(PeerLinks* links, UniqueFd socket, const ucred& peer, uint64_t number)
      : links_(links), socket_(std::move(socket)), out_(links->base_, socket_.get()), peer_(peer), number_(number) {
    readable_.reset(event_new(
        links_->base_, socket_.get(), EV_READ | EV_PERSIST,
        [](evutil_socket_t, short, void* self) { static_cast<Visitor*>(self)->read(); }, this));
    event_add(readable_.get(), nullptr);
  }

  bool closed() const { return !readable_; }
  uint64_t number() const { return number_; }

  void revoke(const ExchangeKey& key) {
    if (closed() || lent_.erase(key) == 0) return;
    send({.type = PeerMessageType::kRevoked, .key = key});
  }
  void take_back(const ExchangeKey& key) {
    if (!closed()) send({.type = PeerMessageType::kRevoked, .key = key});
  }
  // It is about to be forgotten.
  void end() {
    if (known_ && links_->segments_) links_->segments_->left(index_, number_);
  }

 private:
  void read() {
    PeerMessage message;
    UniqueFd fd;
    const Status status = receive(socket_.get(), &message, &fd);
    if (status.code() == EAGAIN) return;
    if (!status.ok()) return close(status.code() == EPIPE ? "" : status.message());
    if (!known_) {
      known_ = message.type == PeerMessageType::kHello && links_->may_visit(message.id, peer_.uid);
      index_ = message.id;
      if (!known_) close("it is no session of this host");
    } else if (message.type == PeerMessageType::kFetch) {
      give(message);
    } else if (message.type == PeerMessageType::kAttach && links_->segments_) {
      attach(message);
    } else if (message.type == PeerMessageType::kDetach && links_->segments_) {
      links_->segments_->detach(index_, number_, message.key);
    } else {
      close("a message that makes no sense");
    }
  }

  void give(const PeerMessage& wanted) {
    PeerMessage answer{.type = PeerMessageType::kFetched, .id = wanted.id, .key = wanted.key};
    const Exchange::Thing* const thing = links_->exchange_->find(wanted.key);
    if (!thing || thing->guest.kind == GuestOwner::Kind::kNobody || thing->guest != wanted.owner) {
      if (thing) log::warn("a process of another owner asked for memory of this virtual GPU");
      answer.error = ENOENT;
      return send(answer);
    }
    // Without one, as an event of NVIDIA's driver, it has its name in this virtual GPU's sandbox alone.
    if (!thing->fd) {
      answer.error = ENOTSUP;
      return send(answer);
    }
    answer.bytes = thing->bytes;
    answer.payload = thing->payload;
    if (wanted.lent) lent_.insert(wanted.key);
    send(answer, thing->fd.get());
  }

  void attach(const PeerMessage& message) {
    PeerAttach wanted;
    wanted.read_only = message.lent != 0;
    static_assert(sizeof wanted.name == sizeof message.payload);
    std::memcpy(wanted.name.data(), message.payload.data(), sizeof wanted.name);
    links_->segments_->attach(index_, number_, wanted,
                              [links = links_, number = number_, id = message.id](
                                  int error, const ExchangeKey& key, uint64_t bytes, uint32_t access, int fd) {
                                Visitor* const visitor = links->visitor(number);
                                if (!visitor || visitor->closed()) return;  // all that it had is given back
                                visitor->send({.type = PeerMessageType::kFetched,
                                               .id = id,
                                               .lent = access,
                                               .error = static_cast<uint32_t>(error),
                                               .bytes = bytes,
                                               .key = key},
                                              fd);
                              });
  }

  void send(const PeerMessage& message, int fd = -1) {
    if (const Status status = out_.send(bytes_of(message), fd); !status.ok()) close(status.message());
  }

  // Who has memory lent finds the connection closed.
  void close(const std::string& why) {
    if (!why.empty()) log::warn("connection of process {}: {}", peer_.pid, why);
    readable_.reset();
    ::shutdown(socket_.get(), SHUT_RDWR);
    links_->sweep_later();
  }

  PeerLinks* const links_;
  UniqueFd socket_;
  PacketQueue out_;
  const ucred peer_;
  const uint64_t number_;
  uint32_t index_ = 0;  // of its virtual GPU, once it is known
  bool known_ = false;
  std::set<ExchangeKey> lent_;
  EventPtr readable_;
};

class PeerLinks::Host {
 public:
  Host(PeerLinks* links, UniqueFd socket, uint32_t index)
      : links_(links), socket_(std::move(socket)), out_(links->base_, socket_.get()), index_(index) {
    readable_.reset(event_new(
        links_->base_, socket_.get(), EV_READ | EV_PERSIST,
        [](evutil_socket_t, short, void* self) { static_cast<Host*>(self)->read(); }, this));
    event_add(readable_.get(), nullptr);
    send({.type = PeerMessageType::kHello, .id = links_->config_.index});
  }

  bool closed() const { return !readable_; }

  void fetch(const ExchangeKey& key, bool lent, const GuestOwner& owner, Fetched fetched) {
    ask({.type = PeerMessageType::kFetch, .lent = lent, .owner = owner, .key = key},
        [this, key, lent, fetched = std::move(fetched)](const PeerMessage& answer, UniqueFd fd) {
          if (answer.error == 0 && lent) lent_.insert(key);
          Exchange::Thing thing;
          thing.fd = std::move(fd);
          thing.bytes = answer.bytes;
          thing.payload = answer.payload;
          fetched(errno_in(answer), std::move(thing));
        });
  }

  void attach(const PeerAttach& wanted, SegmentAttached attached) {
    PeerMessage message{.type = PeerMessageType::kAttach, .lent = wanted.read_only};
    std::memcpy(message.payload.data(), wanted.name.data(), sizeof wanted.name);
    ask(message, [this, attached = std::move(attached)](const PeerMessage& answer, UniqueFd fd) {
      // Nobody else's, and not one that is in use.
      const bool is_new =
          answer.error != 0 || (publisher_of(answer.key) == index_ && fd && lent_.insert(answer.key).second);
      if (!is_new) close("a segment that makes no sense");
      attached(is_new ? errno_in(answer) : EPROTO, {answer.key, answer.bytes, answer.lent, std::move(fd)});
    });
  }

  void detach(const ExchangeKey& key) {
    if (!closed() && lent_.erase(key)) send({.type = PeerMessageType::kDetach, .key = key});
  }

  // Tells all who wait or have something lent.
  void end() {
    for (auto& [id, answered] : std::exchange(under_way_, {})) answered({.error = EPIPE}, {});
    for (const ExchangeKey& key : std::exchange(lent_, {})) links_->revoked_(key);
  }

 private:
  using Answered = std::function<void(const PeerMessage& answer, UniqueFd fd)>;

  static int errno_in(const PeerMessage& answer) { return static_cast<int>(std::min(answer.error, 4095u)); }

  void ask(PeerMessage message, Answered answered) {
    if (closed() || under_way_.size() >= kFetchesMost) {
      const uint32_t error = closed() ? EPIPE : EBUSY;
      links_->failed_.emplace_back([answered = std::move(answered), error] { answered({.error = error}, {}); });
      return links_->sweep_later();
    }
    message.id = next_++;
    under_way_[message.id] = std::move(answered);
    send(message);
  }

  void read() {
    PeerMessage message;
    UniqueFd fd;
    const Status status = receive(socket_.get(), &message, &fd);
    if (status.code() == EAGAIN) return;
    if (!status.ok()) return close(status.code() == EPIPE ? "" : status.message());
    if (message.type == PeerMessageType::kRevoked) {
      if (lent_.erase(message.key)) links_->revoked_(message.key);
      return;
    }
    const auto found = message.type == PeerMessageType::kFetched ? under_way_.find(message.id) : under_way_.end();
    if (found == under_way_.end()) return close("a message that makes no sense");
    const Answered answered = std::move(found->second);
    under_way_.erase(found);
    answered(message, std::move(fd));
  }

  void send(const PeerMessage& message) {
    if (const Status status = out_.send(bytes_of(message)); !status.ok()) close(status.message());
  }

  void close(const std::string& why) {
    if (!why.empty()) log::warn("connection to another session: {}", why);
    readable_.reset();
    links_->sweep_later();
  }

  PeerLinks* const links_;
  UniqueFd socket_;
  PacketQueue out_;
  const uint32_t index_;
  uint32_t next_ = 1;
  std::map<uint32_t, Answered> under_way_;
  std::set<ExchangeKey> lent_;
  EventPtr readable_;
};

PeerLinks::PeerLinks(event_base* base, UniqueFd listener, PeerLinksConfig config, const Exchange* exchange,
                     Revoked revoked)
    : base_(base),
      listener_(std::move(listener)),
      config_(std::move(config)),
      exchange_(exchange),
      revoked_(std::move(revoked)) {
  evutil_make_socket_nonblocking(listener_.get());
  acceptable_.reset(event_new(
      base_, listener_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<PeerLinks*>(self)->accept(); }, this));
  sweep_timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<PeerLinks*>(self)->sweep(); }, this));
  event_add(acceptable_.get(), nullptr);
}

PeerLinks::~PeerLinks() = default;

void PeerLinks::accept() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ucred who{};
  socklen_t length = sizeof who;
  if (!socket || ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &length) < 0) return;
  // Whoever cannot be a session takes no place here.
  const int64_t index = config_.first_uid < 0 ? 0 : int64_t{who.uid} - config_.first_uid;
  if (index < 0 || index > kIndexMost || !may_visit(static_cast<uint32_t>(index), who.uid)) return;
  if (visitors_.size() >= kVisitorsMost) return;
  visitors_.push_back(std::make_unique<Visitor>(this, std::move(socket), who, next_visitor_++));
}

bool PeerLinks::may_visit(uint32_t index, uid_t user) const {
  return config_.first_uid < 0 ? user == ::geteuid() : user == config_.first_uid + int64_t{index};
}

Result<PeerLinks::Host*> PeerLinks::reach(uint32_t index) {
  auto found = hosts_.find(index);
  if (found != hosts_.end() && found->second->closed()) {
    const auto gone = hosts_.extract(found);
    gone.mapped()->end();
    found = hosts_.end();
  }
  if (found != hosts_.end()) return found->second.get();
  auto socket = reach_unix(peer_socket(config_.run, index));
  if (!socket.ok()) {
    log::warn("virtual GPU {} of this host: {}", index, socket.status().message());
    return socket.status();
  }
  evutil_make_socket_nonblocking(socket.value().get());
  return hosts_.emplace(index, std::make_unique<Host>(this, std::move(socket.value()), index)).first->second.get();
}

void PeerLinks::fetch(const ExchangeKey& key, bool lent, const GuestOwner& owner, Fetched fetched) {
  const auto host = reach(publisher_of(key));
  if (host.ok()) return host.value()->fetch(key, lent, owner, std::move(fetched));
  failed_.emplace_back([fetched = std::move(fetched), error = host.status().code()] { fetched(error, {}); });
  sweep_later();
}

void PeerLinks::attach(uint32_t index, const PeerAttach& wanted, SegmentAttached attached) {
  const auto host = reach(index);
  if (host.ok()) return host.value()->attach(wanted, std::move(attached));
  failed_.emplace_back([attached = std::move(attached)] { attached(ENODEV, {}); });
  sweep_later();
}

void PeerLinks::detach(const ExchangeKey& key) {
  const auto host = hosts_.find(publisher_of(key));
  if (host != hosts_.end()) host->second->detach(key);
}

PeerLinks::Visitor* PeerLinks::visitor(uint64_t number) const {
  for (const auto& visitor : visitors_) {
    if (visitor->number() == number) return visitor.get();
  }
  return nullptr;
}

void PeerLinks::take_back(uint64_t number, const ExchangeKey& key) {
  if (Visitor* const found = visitor(number)) found->take_back(key);
}

void PeerLinks::revoke(const ExchangeKey& key) {
  for (const auto& visitor : visitors_) visitor->revoke(key);
}

void PeerLinks::sweep_later() {
  const timeval now{0, 0};
  event_add(sweep_timer_.get(), &now);
}

void PeerLinks::sweep() {
  visitors_.remove_if([](const auto& visitor) {
    if (visitor->closed()) visitor->end();
    return visitor->closed();
  });
  std::vector<std::unique_ptr<Host>> gone;
  for (auto next = hosts_.begin(); next != hosts_.end();) {
    const auto host = next++;
    if (host->second->closed()) gone.push_back(std::move(hosts_.extract(host).mapped()));
  }
  for (const auto& host : gone) host->end();
  for (const auto& tell : std::exchange(failed_, {})) tell();
}

}  // namespace bandsaw
