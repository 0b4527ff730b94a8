#include "memory/swap/lending.h"

#include <algorithm>

#include "memory/swap/book.h"

namespace bandsaw::swap {
namespace {

// Devices map memory in these.
constexpr int64_t kUnit = 2 << 20;
// A wish holds for so long after work that found no room.
constexpr int64_t kWishHolds = 1'000'000'000;
// While the GPU's engines are looked at for their end.
constexpr int64_t kSeldom = 10'000'000;
// Where nothing has moved for so long, it is looked at no more often than that either.
constexpr int64_t kStalls = 100'000'000;

int64_t round_down(int64_t bytes) { return bytes / kUnit * kUnit; }

}  // namespace

void Lending::set(const std::string& name, const Terms& terms) { tenants_[name].terms = terms; }

void Lending::remove(const std::string& name) { tenants_.erase(name); }

void Lending::attach(const std::string& name, int64_t in_force) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  Tenant& tenant = found->second;
  Tenant fresh;
  fresh.terms = tenant.terms;
  fresh.attached = fresh.unsent = true;
  fresh.told.beyond = fresh.seen.in_force = in_force;
  tenant = fresh;
}

void Lending::detach(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  const Terms terms = found->second.terms;
  found->second = {};
  found->second.terms = terms;
}

void Lending::see(const std::string& name, const Seen& seen) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  const Seen& before = found->second.seen;
  moved_ |= seen.on_device != before.on_device || seen.in_force != before.in_force;
  found->second.seen = seen;
}

int64_t Lending::beyond(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? 0 : found->second.told.beyond;
}

int64_t Lending::may_hold(const Tenant& tenant) {
  return std::max<int64_t>(reserved(tenant) + std::max(tenant.told.beyond, tenant.seen.in_force), 0);
}

// Or may, before it hears of an order.
int64_t Lending::held(const Tenant& tenant) {
  return std::max(may_hold(tenant), static_cast<int64_t>(tenant.seen.on_device));
}

bool Lending::leaves(const Tenant& tenant) {
  return tenant.attached && static_cast<int64_t>(tenant.seen.on_device) > reserved(tenant) + tenant.told.beyond;
}

// What its runner keeps free for moves; and of a chunk that leaves, device memory is there for a moment longer than it
// counts.
int64_t Lending::margin(const Tenant& tenant) {
  return 2 * std::min<int64_t>(reserved(tenant) / 16, static_cast<int64_t>(kLargestChunk));
}

int64_t Lending::room() const {
  int64_t room = 0;
  for (const auto& [name, tenant] : tenants_) {
    room += reserved(tenant) - held(tenant) - (leaves(tenant) ? margin(tenant) : 0);
  }
  return std::max<int64_t>(room, 0);
}

uint64_t Lending::debt() const {
  int64_t beyond = 0;
  for (const auto& [name, tenant] : tenants_) beyond += held(tenant) - reserved(tenant);
  return static_cast<uint64_t>(std::max<int64_t>(beyond, 0));
}

// 0: it has all that it needs.
int64_t Lending::wish(const Tenant& tenant, int64_t now) {
  if (tenant.told.beyond <= 0 && now - tenant.seen.short_at > kWishHolds) return 0;
  const int64_t needs = static_cast<int64_t>(std::min(tenant.seen.used, tenant.terms.share)) + margin(tenant);
  return std::max<int64_t>((needs + kUnit - 1) / kUnit * kUnit - reserved(tenant), 0);
}

void Lending::note_activity(Tenant& tenant, int64_t now) {
  const bool works = tenant.seen.works || now - tenant.seen.worked_at < tenant.idle_after;
  const bool begins = tenant.attached && works && !tenant.active;
  tenant.active = tenant.attached && works;
  if (tenant.seen.worked_at != tenant.most_since) tenant.most = UINT64_MAX;
  if (!begins || tenant.lent_at == 0) return;
  const int64_t worth = std::max(kLoanLeast, kLoanTimes * tenant.out_took);
  const bool was_worth = tenant.out_took != 0 && now - tenant.lent_at >= worth;
  tenant.idle_after =
      was_worth ? std::max(kIdleLeast, tenant.idle_after / 2) : std::min(kIdleMost, tenant.idle_after * 2);
  tenant.lent_at = 0;
}

// How what it has lent leaves the device.
void Lending::note_leaving(Tenant& tenant, int64_t now) {
  if (tenant.lent_at == 0 && tenant.told.beyond < 0 && !tenant.active) {
    tenant.lent_at = now;
    tenant.out_took = 0;
  }
  if (!leaves(tenant)) {
    if (tenant.lent_at != 0 && tenant.out_took == 0) tenant.out_took = std::max<int64_t>(now - tenant.lent_at, 1);
    tenant.moved_at = now;
    return;
  }
  if (tenant.seen.on_device != tenant.moved_to || tenant.moved_at == 0) tenant.moved_at = now;
  tenant.moved_to = tenant.seen.on_device;
  if (tenant.active || now - tenant.moved_at < kPatience) return;
  tenant.most = tenant.terms.reserved - std::min(tenant.terms.reserved, tenant.seen.on_device);
  tenant.most_since = tenant.seen.worked_at;
}

// Those that work have their reservations, and share what the idle ones may lend by what they wish. Of these the one
// that has not worked for longest lends first, and what nobody wishes stays where it is.
void Lending::set_goals(int64_t now) {
  int64_t left = 0, wished = 0;
  std::vector<Tenant*> idle;
  for (auto& [name, tenant] : tenants_) {
    const bool lends = tenant.attached && !tenant.active && tenant.seen.used > tenant.terms.reserved;
    const uint64_t most = std::min({tenant.terms.lendable, tenant.terms.reserved, tenant.most});
    tenant.low = lends ? -round_down(static_cast<int64_t>(most)) : 0;
    left -= tenant.low;
    tenant.goal = tenant.active ? wish(tenant, now) : 0;
    if (tenant.active) {
      wished += tenant.goal;
    } else {
      idle.push_back(&tenant);
    }
  }
  const int64_t may_give = left;
  for (auto& [name, tenant] : tenants_) {
    if (wished > may_give) {
      tenant.goal = round_down(static_cast<int64_t>(static_cast<double>(tenant.goal) * static_cast<double>(may_give) /
                                                    static_cast<double>(wished)));
    }
    left -= tenant.goal;
  }
  std::ranges::sort(idle, std::greater{}, [](const Tenant* tenant) { return tenant->seen.worked_at; });
  for (Tenant* tenant : idle) {
    const int64_t kept = std::clamp<int64_t>(tenant->told.beyond - tenant->low, 0, left);
    tenant->goal = tenant->low + kept;
    left -= kept;
  }
  for (Tenant* tenant : idle) {
    const int64_t back = std::clamp<int64_t>(-tenant->goal, 0, left);
    tenant->goal += back;
    left -= back;
  }
}

// Who is to hold less hears of it at once; who may hold more, as far as the others hold less now. Owners go first.
void Lending::give_orders() {
  for (auto& [name, tenant] : tenants_) tenant.told.beyond = std::min(tenant.told.beyond, tenant.goal);
  for (const bool owners : {true, false}) {
    for (auto& [name, tenant] : tenants_) {
      const int64_t most = owners ? std::min<int64_t>(tenant.goal, 0) : tenant.goal;
      if (most <= tenant.told.beyond) continue;
      // What is still there may stay.
      const int64_t has = held(tenant) - may_hold(tenant);
      const int64_t step = std::min(most - tenant.told.beyond, room() + has);
      tenant.told.beyond += step < most - tenant.told.beyond ? round_down(step) : step;
    }
  }
  for (auto& [name, tenant] : tenants_) {
    tenant.told.coming = tenant.goal > tenant.told.beyond ? tenant.goal : tenant.told.beyond;
    tenant.unsent |= tenant.told != tenant.sent;
    moved_ |= tenant.unsent;
  }
}

int64_t Lending::next_look(int64_t now) const {
  int64_t next = kNever;
  bool wanting = false;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant.attached) continue;
    const bool on_its_way = tenant.goal != tenant.told.beyond || tenant.told.beyond != tenant.seen.in_force;
    if (on_its_way || leaves(tenant)) next = std::min(next, now + (now - moved_at_ < kStalls ? kLook : kSeldom));
    wanting |= tenant.active && wish(tenant, now) > tenant.goal;
  }
  if (!wanting) return next;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant.active) continue;
    next = std::min(next, tenant.seen.works ? now + kSeldom : tenant.seen.worked_at + tenant.idle_after);
  }
  return std::max(next, now + kLook / 10);
}

int64_t Lending::review(int64_t now) {
  for (auto& [name, tenant] : tenants_) note_activity(tenant, now);
  set_goals(now);
  give_orders();
  for (auto& [name, tenant] : tenants_) note_leaving(tenant, now);
  if (std::exchange(moved_, false)) moved_at_ = now;
  return next_look(now);
}

std::vector<std::pair<std::string, Lending::Order>> Lending::take_orders() {
  std::vector<std::pair<std::string, Order>> orders;
  for (auto& [name, tenant] : tenants_) {
    if (!tenant.attached || !tenant.unsent) continue;
    tenant.unsent = false;
    tenant.sent = tenant.told;
    orders.emplace_back(name, tenant.told);
  }
  return orders;
}

void Lending::repeat_orders() {
  for (auto& [name, tenant] : tenants_) tenant.unsent = true;
}

}  // namespace bandsaw::swap
