// Leases: what the scheduler knows of a virtual GPU whose gates stand open.

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/arbiter_core.h"

namespace bandsaw {

using sched::Answer;
using sched::Engine;

void ArbiterCore::set_open(Vgpu& vgpu, EngineQueue queue, bool open) {
  if (!vgpu.grant_page) return;
  for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState&) {
    vgpu.grant_page->gates[slot][engine].open = open ? 1 : 0;
  });
}

// Makes one request that stands for all work to come. False: the scheduler does not dispatch it now.
bool ArbiterCore::take_lease(Vgpu& vgpu, EngineQueue queue, Time now) {
  const sched::Request request{.id = next_request_++,
                               .vgpu = vgpu.id,
                               .engine = static_cast<Engine>(queue),
                               .estimate = options_.period_ns,
                               .priority = 0};
  if (scheduler_->arrival(request, now) != sched::Error::kNone) return false;
  const Answer answer = scheduler_->next(request.engine, now);
  if (answer.kind != Answer::Kind::kDispatch || answer.request.id != request.id) {
    (void)scheduler_->cancel(vgpu.id, request.engine, request.id, now);
    if (answer.kind == Answer::Kind::kDispatch) grant(answer.request, now);
    return false;
  }
  vgpu.leases[queue] = {.state = Lease::State::kOpen, .id = request.id, .since = now};
  return true;
}

// Asks that wait are granted together with the lease. If the scheduler gives no lease now, they go on waiting.
void ArbiterCore::open(Vgpu& vgpu, EngineQueue queue, Time now) {
  std::vector<std::pair<uint32_t, unsigned>> asking;
  for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState& state) {
    if (!state.waiting) return;
    asking.emplace_back(slot, engine);
    withdraw(vgpu, slot, engine, now);
  });
  const bool opened = take_lease(vgpu, queue, now);
  if (opened) set_open(vgpu, queue, true);
  for (const auto& [slot, engine] : asking) {
    if (opened) vgpu.slots[slot][engine].waiting = false;
    opened ? let_in(vgpu, slot, engine, now) : arrive(vgpu, slot, engine, now);
  }
}

void ArbiterCore::close(Vgpu& vgpu, EngineQueue queue, Time now) {
  Lease& lease = vgpu.leases[queue];
  if (lease.state != Lease::State::kOpen) return;
  set_open(vgpu, queue, false);
  lease.state = Lease::State::kClosing;
  lease.closed = now;
  for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState& state) {
    read_gate(vgpu, slot, engine, now);
    const uint32_t running = running_at(vgpu, slot, engine);
    state.leased = running - std::min<uint32_t>(running, static_cast<uint32_t>(state.flying.size()));
  });
  lease.counted = true;
  settle_closing(vgpu, queue, now);
}

// Ends a closing lease when all that was begun under it is over.
void ArbiterCore::settle_closing(Vgpu& vgpu, EngineQueue queue, Time now) {
  if (vgpu.leases[queue].state != Lease::State::kClosing || !vgpu.leases[queue].counted) return;
  bool left = false;
  for_engines(vgpu, queue, [&](uint32_t, unsigned, const EngineState& state) { left = left || state.leased > 0; });
  if (!left) end_lease(vgpu, queue, now);
}

void ArbiterCore::end_lease(Vgpu& vgpu, EngineQueue queue, Time now) {
  Lease& lease = vgpu.leases[queue];
  if (lease.state == Lease::State::kNone) return;
  const Part all = {now - lease.since,
                    vgpu.meters[queue].runs ? lease.own + take_part(vgpu, queue, now).own : now - lease.since};
  const Time held = all.own + lease.credit;
  const uint64_t kept = lease.closed ? all.of(static_cast<uint64_t>(now - lease.closed)) : 0;
  const Time charged = charge(vgpu, queue, lease.busy_ns, held, static_cast<Time>(kept));
  (void)scheduler_->completion(vgpu.id, static_cast<Engine>(queue), lease.id, charged, now);
  if (charged > 0) record(vgpu, 0, static_cast<unsigned>(queue), {lease.id, lease.since, lease.since}, now, charged);
  lease = {.credit = std::max<Time>(0, held - charged)};
  free_since_[queue] = now;
}

void ArbiterCore::give_up_lease(Vgpu& vgpu, EngineQueue queue, Time now) {
  for_engines(vgpu, queue, [&](uint32_t, unsigned engine, EngineState& state) {
    if (state.leased == 0) return;
    if (state.overdue == 0) state.overdue_since = now;
    state.overdue += std::exchange(state.leased, 0);
    ++vgpu.use[engine].overruns;
  });
  vgpu.leases[queue].busy_ns = static_cast<uint64_t>(now - vgpu.leases[queue].since);
  end_lease(vgpu, queue, now);
}

// Charges what was done since the last renewal, and takes a new lease. An idle virtual GPU loses its lease, and has to
// ask again.
void ArbiterCore::renew(Vgpu& vgpu, EngineQueue queue, Time now) {
  bool busy = false;
  for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState&) {
    read_gate(vgpu, slot, engine, now);
    busy = busy || running_at(vgpu, slot, engine) > 0;
  });
  if (!busy && vgpu.leases[queue].busy_ns == 0) return close(vgpu, queue, now);
  end_lease(vgpu, queue, now);
  const Time credit = vgpu.leases[queue].credit;
  const bool taken = take_lease(vgpu, queue, now);
  if (!taken) vgpu.leases[queue] = {.state = Lease::State::kOpen, .since = now};
  vgpu.leases[queue].credit = credit;
  if (!taken) close(vgpu, queue, now);
}

ArbiterCore::Time ArbiterCore::renew_leases(EngineQueue queue, Time now) {
  Time next = kNever;
  for (auto& [name, vgpu] : vgpus_) {
    const Lease& lease = vgpu.leases[queue];
    if (lease.state == Lease::State::kOpen && now - lease.since >= options_.period_ns) renew(vgpu, queue, now);
    if (lease.state == Lease::State::kOpen) next = std::min(next, lease.since + options_.period_ns);
  }
  return next;
}

}  // namespace bandsaw
