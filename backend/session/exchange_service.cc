#include "backend/session/exchange_service.h"

#include <algorithm>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw {
void answer_exchange(Runner* runner, const RunnerMessage& request, int error, const ExchangeTail& tail, uint64_t bytes,
                     int fd) {
  RunnerMessage reply{.type = RunnerMessageType::kExchanged, .id = request.id};
  reply.value = static_cast<uint64_t>(error);
  reply.bytes = bytes;
  runner->send(reply, std::as_bytes(std::span(&tail, 1)), {&fd, fd >= 0 ? size_t{1} : 0}, nullptr);
}

ExchangeService::ExchangeService(uint32_t index) : index_(index), exchange_(index) {
  exchange_.set_on_gone([this](const ExchangeKey& key) {
    if (links_) links_->revoke(key);
  });
}

size_t ExchangeService::sharing() const {
  std::set<Exchange::Owner> all(openers_.begin(), openers_.end());
  for (const auto& [owner, count] : exchange_.counts()) {
    if (count != 0) all.insert(owner);
  }
  return all.size();
}

bool ExchangeService::shares(const Runner& runner) const {
  const auto published = exchange_.counts().find(&runner);
  return (published != exchange_.counts().end() && published->second != 0) ||
         std::any_of(openers_.begin(), openers_.end(), [&runner](const Runner* one) { return one == &runner; });
}

void ExchangeService::request(Runner* runner, const GuestOwner& owner, const RunnerMessage& message,
                              const ExchangeTail& tail, UniqueFd fd) {
  if (message.type == RunnerMessageType::kWithdraw) return exchange_.withdraw(runner, tail.key);
  if (message.type == RunnerMessageType::kFetch) return fetch(runner, owner, message, tail.key);
  auto key = exchange_.publish({runner, std::move(fd), message.bytes, tail.payload, owner});
  if (!key.ok()) log::warn("runner {}: {}", runner->pid(), key.status().message());
  ExchangeTail made;
  if (key.ok()) made.key = key.value();
  answer_exchange(runner, message, key.status().code(), made);
}

void ExchangeService::fetch(Runner* runner, const GuestOwner& owner, const RunnerMessage& message,
                            const ExchangeKey& key) {
  const bool lent = message.flags & kFetchLent;
  if (publisher_of(key) != index_ && links_) {
    const uint64_t visit = visits_.try_emplace(runner, next_visit_).first->second;
    if (visit == next_visit_) ++next_visit_;
    return links_->fetch(key, lent, owner, [this, runner, visit, message, key](int error, Exchange::Thing thing) {
      fetched(runner, visit, message, key, error, std::move(thing));
    });
  }
  const Exchange::Thing* const thing = exchange_.find(key);
  // A virtual GPU lends nothing to itself: nobody would be charged for it.
  if (!thing || lent) return answer_exchange(runner, message, ENOENT, {});
  if (thing->owner != runner) openers_.insert(runner);
  answer_exchange(runner, message, 0, {key, thing->payload}, thing->bytes, thing->fd.get());
}

void ExchangeService::fetched(Runner* runner, uint64_t visit, const RunnerMessage& message, const ExchangeKey& key,
                              int error, Exchange::Thing thing) {
  const auto found = visits_.find(runner);
  if (found == visits_.end() || found->second != visit) return;  // it has ended
  if (error == 0) openers_.insert(runner);
  if (error == 0 && (message.flags & kFetchLent)) borrowers_[key].insert(runner);
  answer_exchange(runner, message, error, {key, thing.payload}, thing.bytes, thing.fd.get());
}

void ExchangeService::revoked(const ExchangeKey& key) {
  const auto gone = borrowers_.extract(key);
  if (gone.empty()) return;
  const ExchangeTail tail{key, {}};
  for (Runner* const runner : gone.mapped()) {
    runner->send({.type = RunnerMessageType::kRevoked}, std::as_bytes(std::span(&tail, 1)), {}, nullptr);
  }
}

void ExchangeService::drop(Runner* runner) {
  exchange_.drop(runner);
  openers_.erase(runner);
  visits_.erase(runner);
  for (auto& [key, runners] : borrowers_) runners.erase(runner);
  std::erase_if(borrowers_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace bandsaw
