#include "backend/runner/objects/exchange.h"

#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "backend/control/packet.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

bool ExchangeClient::send(const RunnerMessage& message, const Thing& thing) const {
  const int fd = thing.fd.get();
  const Status status = send_packet(socket_, std::as_bytes(std::span(&message, 1)),
                                    std::as_bytes(std::span(&thing.tail, 1)), {&fd, thing.fd ? size_t{1} : 0});
  if (!status.ok()) log::warn("cannot ask the session: {}", status.message());
  return status.ok();
}

void ExchangeClient::ask(RunnerMessage message, const Thing& thing, Done done) {
  {
    std::lock_guard lock(mutex_);
    message.id = next_++;
    under_way_[message.id] = std::move(done);
  }
  if (send(message, thing)) return;
  std::unique_lock lock(mutex_);
  const auto failed = under_way_.extract(message.id);
  lock.unlock();
  if (!failed.empty()) failed.mapped()(EPIPE, {});
}

void ExchangeClient::publish(Thing thing, Done done) {
  RunnerMessage message{.type = RunnerMessageType::kPublish};
  message.bytes = thing.bytes;
  ask(message, thing, std::move(done));
}

void ExchangeClient::fetch(const ExchangeKey& key, bool lent, Done done) {
  Thing wanted;
  wanted.tail.key = key;
  ask({.type = RunnerMessageType::kFetch, .flags = lent ? kFetchLent : 0}, wanted, std::move(done));
}

void ExchangeClient::withdraw(const ExchangeKey& key) {
  Thing gone;
  gone.tail.key = key;
  send({.type = RunnerMessageType::kWithdraw}, gone);
}

void ExchangeClient::ask_segment(RunnerMessageType what, std::string_view name, uint64_t bytes, uint32_t flags,
                                 Done done) {
  Thing wanted;
  if (name.size() >= wanted.tail.payload.size()) return done(EINVAL, {});
  name.copy(reinterpret_cast<char*>(wanted.tail.payload.data()), name.size());
  RunnerMessage message{.type = what, .flags = flags};
  message.bytes = bytes;
  ask(message, wanted, std::move(done));
}

void ExchangeClient::detach_segment(const ExchangeKey& key) {
  Thing gone;
  gone.tail.key = key;
  send({.type = RunnerMessageType::kSegmentDetach}, gone);
}

void ExchangeClient::ask_checkpoint(uint32_t action, uint32_t pid, uint64_t timeout_ms, Done done) {
  RunnerMessage message{.type = RunnerMessageType::kCheckpoint, .flags = action, .value = pid};
  message.bytes = timeout_ms;
  ask(message, {}, std::move(done));
}

Status ExchangeClient::revoked(std::span<const std::byte> tail) const {
  ExchangeTail gone;
  if (tail.size() != sizeof gone) return Status::error(EPROTO, "a revocation of {} bytes", tail.size());
  std::memcpy(&gone, tail.data(), sizeof gone);
  if (on_revoked_) on_revoked_(gone.key);
  return {};
}

void ExchangeClient::answered(const RunnerMessage& message, std::span<const std::byte> tail,
                              std::vector<UniqueFd> fds) {
  std::unique_lock lock(mutex_);
  const auto waiting = under_way_.extract(message.id);
  lock.unlock();
  if (waiting.empty()) return;
  Thing thing;
  thing.bytes = message.bytes;
  if (!fds.empty()) thing.fd = std::move(fds[0]);
  const bool whole = tail.size() == sizeof(thing.tail);
  if (whole) std::memcpy(&thing.tail, tail.data(), tail.size());
  waiting.mapped()(whole ? static_cast<int>(message.value) : EPROTO, std::move(thing));
}

}  // namespace bandsaw::runner
