#include "memory/swap/chunks.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace bandsaw::swap {

void Chunks::add(uint64_t address, const Chunk& chunk) {
  remove(address);
  chunks_[address] = chunk;
  apart_ += chunk.apart;
  movable_ += movable(chunk);
}

void Chunks::remove(uint64_t address) {
  const auto found = chunks_.find(address);
  if (found == chunks_.end()) return;
  movable_ -= movable(found->second);
  apart_ -= found->second.apart;
  chunks_.erase(found);
}

void Chunks::pin(uint64_t address) {
  const auto found = chunks_.find(address);
  if (found == chunks_.end()) return;
  movable_ -= movable(found->second);
  found->second.pinned = true;
}

void Chunks::moved(uint64_t address, bool to_device, uint64_t now_ns, bool apart) {
  const auto found = chunks_.find(address);
  if (found == chunks_.end()) return;
  Chunk& chunk = found->second;
  movable_ -= movable(chunk);
  chunk.on_device = to_device;
  apart_ -= chunk.apart;
  chunk.apart = !to_device && apart;
  apart_ += chunk.apart;
  movable_ += movable(chunk);
  if (!to_device) {
    chunk.gone_ns = now_ns;
  } else {
    chunk.returns = chunk.gone_ns && now_ns - chunk.gone_ns < kQuickReturnNs ? chunk.returns + 1 : 0;
  }
}

void Chunks::reached(const std::vector<uint64_t>& chunks) {
  for (const uint64_t address : chunks) {
    const auto found = chunks_.find(address);
    if (found != chunks_.end()) apart_ -= std::exchange(found->second.apart, false);
  }
}

std::vector<uint64_t> Chunks::apart(const std::vector<uint64_t>& of) const {
  std::vector<uint64_t> found;
  if (apart_ == 0) return found;
  for (const uint64_t address : std::set<uint64_t>(of.begin(), of.end())) {
    const Chunk* const chunk = find(address);
    if (chunk && chunk->apart) found.push_back(address);
  }
  return found;
}

std::vector<uint64_t> Chunks::apart() const {
  std::vector<uint64_t> found;
  for (const auto& [address, chunk] : chunks_) {
    if (chunk.apart) found.push_back(address);
  }
  return found;
}

const Chunks::Chunk* Chunks::find(uint64_t address) const {
  const auto found = chunks_.find(address);
  return found == chunks_.end() ? nullptr : &found->second;
}

void Chunks::reach_allocation(uint64_t address, std::vector<uint64_t>* chunks) const {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return;
  const auto& [base, at] = *std::prev(after);
  if (address - base >= at.bytes) return;
  for (auto next = chunks_.find(at.allocation); next != chunks_.end(); ++next) {
    if (next->second.allocation != at.allocation) break;
    chunks->push_back(next->first);
  }
}

void Chunks::reach_range(uint64_t address, uint64_t bytes, std::vector<uint64_t>* chunks) const {
  auto next = chunks_.upper_bound(address);
  if (next != chunks_.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes) --next;
  for (; next != chunks_.end() && (next->first <= address || next->first - address < bytes); ++next) {
    chunks->push_back(next->first);
  }
}

void Chunks::used(const std::vector<uint64_t>& chunks, uint64_t now_ns) {
  for (const uint64_t address : chunks) {
    if (const auto found = chunks_.find(address); found != chunks_.end()) found->second.used_ns = now_ns;
  }
}

// Who may go, first the first to go: what was used least recently. What came back soon after it had to go goes after
// the others, and of these first what was used last, because a program that goes round more than there is room for
// needs that again last.
std::vector<uint64_t> Chunks::victims(const std::vector<uint64_t>& wanted) const {
  const std::set<uint64_t> stay(wanted.begin(), wanted.end());
  std::vector<uint64_t> found;
  for (const auto& [address, chunk] : chunks_) {
    if (chunk.on_device && !chunk.pinned && !stay.contains(address)) found.push_back(address);
  }
  const auto rank = [this](uint64_t address) {
    const Chunk& chunk = chunks_.at(address);
    const bool thrashes = chunk.returns != 0;
    return std::tuple(thrashes, thrashes ? ~chunk.used_ns : chunk.used_ns, address);
  };
  std::ranges::sort(found, {}, rank);
  return found;
}

Chunks::Plan Chunks::bring(const std::vector<uint64_t>& wanted, uint64_t room) const {
  Plan plan;
  std::vector<uint64_t> may_go;
  bool known = false;
  size_t next = 0;
  std::set<uint64_t> seen;
  for (const uint64_t address : wanted) {
    const Chunk* const chunk = find(address);
    if (!chunk || chunk->on_device || chunk->pinned || !seen.insert(address).second) continue;
    if (!known) may_go = victims(wanted);
    known = true;
    uint64_t free = room;
    size_t end = next;
    while (free < chunk->bytes && end < may_go.size()) free += find(may_go[end++])->bytes;
    if (free < chunk->bytes) continue;
    for (; next < end; ++next) plan.out.push_back(may_go[next]);
    plan.in.push_back(address);
    room = free - chunk->bytes;
  }
  return plan;
}

// What was in use after `since` and is away, first what was used least recently.
std::vector<uint64_t> Chunks::away_in_order(const std::set<uint64_t>& but, uint64_t since) const {
  std::vector<uint64_t> away;
  for (const auto& [address, chunk] : chunks_) {
    if (!chunk.on_device && !chunk.pinned && chunk.used_ns > since && !but.contains(address)) away.push_back(address);
  }
  std::ranges::sort(away, {}, [this](uint64_t address) { return std::pair(chunks_.at(address).used_ns, address); });
  return away;
}

void Chunks::bring_back(uint64_t room, size_t most, Plan* plan) const {
  if (!plan->out.empty()) return;
  const std::set<uint64_t> comes(plan->in.begin(), plan->in.end());
  for (const uint64_t address : comes) room -= std::min(room, find(address)->bytes);
  for (const uint64_t address : away_in_order(comes, 0)) {
    const uint64_t bytes = find(address)->bytes;
    if (plan->in.size() >= most || bytes > room) return;
    plan->in.push_back(address);
    room -= bytes;
  }
}

void Chunks::bring_ahead(const std::vector<uint64_t>& wanted, uint64_t since, uint64_t room, size_t most,
                         Plan* plan) const {
  if (plan->in.empty()) return;
  std::set<uint64_t> stay(wanted.begin(), wanted.end());
  for (const uint64_t address : plan->out) room += find(address)->bytes;
  for (const uint64_t address : plan->in) room -= std::min(room, find(address)->bytes);
  const std::vector<uint64_t> next = away_in_order(stay, since);
  stay.insert(plan->out.begin(), plan->out.end());
  std::vector<uint64_t> may_go;
  for (const auto& [address, chunk] : chunks_) {
    if (movable(chunk) != 0 && !stay.contains(address)) may_go.push_back(address);
  }
  const auto used = [this](uint64_t address) { return std::pair(chunks_.at(address).used_ns, address); };
  // What should have been needed again by now first.
  const auto is_past = [&](uint64_t address) { return find(address)->used_ns < since; };
  std::ranges::sort(may_go, std::greater{},
                    [&](uint64_t address) { return std::pair(is_past(address), used(address)); });
  size_t at = 0;
  for (size_t i = 0; i < std::min(most, next.size()); ++i) {
    const Chunk& chunk = *find(next[i]);
    size_t end = at;
    uint64_t free = room;
    for (; free < chunk.bytes && end < may_go.size(); ++end) {
      if (!is_past(may_go[end]) && used(may_go[end]) < used(next[i])) break;
      free += find(may_go[end])->bytes;
    }
    if (free < chunk.bytes) return;
    for (; at < end; ++at) plan->out.push_back(may_go[at]);
    plan->in.push_back(next[i]);
    room = free - chunk.bytes;
  }
}

uint64_t Chunks::last_use(const std::vector<uint64_t>& chunks) const {
  uint64_t last = 0;
  for (const uint64_t address : chunks) {
    const Chunk* const chunk = find(address);
    if (!chunk || chunk->on_device || chunk->pinned) continue;
    if (chunk->used_ns == 0) return 0;
    last = std::max(last, chunk->used_ns);
  }
  return last;
}

bool Chunks::follows(const std::vector<uint64_t>& chunks, uint64_t since) const {
  const uint64_t last = last_use(chunks);
  if (last <= since) return false;
  const std::vector<uint64_t> next = away_in_order({chunks.begin(), chunks.end()}, since);
  return next.empty() || find(next.front())->used_ns >= last;
}

Chunks::Plan Chunks::make_room(uint64_t bytes, uint64_t room) const {
  Plan plan;
  if (room >= bytes) return plan;
  for (const uint64_t address : victims({})) {
    plan.out.push_back(address);
    room += find(address)->bytes;
    if (room >= bytes) return plan;
  }
  return {};
}

Chunks::Plan Chunks::make_way(uint64_t bytes, size_t most) const {
  Plan plan;
  uint64_t gone = 0;
  for (const uint64_t address : victims({})) {
    if (gone >= bytes || plan.out.size() >= most) break;
    plan.out.push_back(address);
    gone += find(address)->bytes;
  }
  return plan;
}

uint64_t Chunks::away(const std::vector<uint64_t>& chunks) const {
  uint64_t bytes = 0;
  for (const uint64_t address : std::set<uint64_t>(chunks.begin(), chunks.end())) {
    const Chunk* const chunk = find(address);
    if (chunk && !chunk->on_device && !chunk->pinned) bytes += chunk->bytes;
  }
  return bytes;
}

}  // namespace bandsaw::swap
