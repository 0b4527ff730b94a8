#include "backend/vgpud/arbiter/leases.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/gate_reader.h"

namespace bandsaw {
namespace {

// An engine that others wanted a moment ago is not left open: they are probably in the middle of something.
constexpr sched::Time kQuiet = 10 * sched::kMillisecond;

}  // namespace

// False: the scheduler does not give it now.
bool Leases::take(VgpuState& vgpu, Queue queue, sched::Time now) {
  const auto id = queues_->take_lease(vgpu, queue, now);
  if (id) vgpu.leases[queue] = {.state = Lease::State::kOpen, .id = *id, .since = now};
  return id.has_value();
}

void Leases::open_for_one_alone(Queue queue, sched::Time now) {
  VgpuState* alone = nullptr;
  for (VgpuState& vgpu : table_->all()) {
    if (table_->wants(vgpu, queue, false) || table_->has_overdue(vgpu, queue)) {
      if (alone) return;
      alone = &vgpu;
    } else if (vgpu.last_wanted[queue] != 0 && now - vgpu.last_wanted[queue] < kQuiet) {
      return;
    }
  }
  if (!alone || alone->leases[queue].state != Lease::State::kNone || alone->shares[queue].cap < 100) return;
  if (table_->has_priorities(*alone, queue)) return;
  open(*alone, queue, now);
}

// Asks that wait are granted together with the lease. If the scheduler gives no lease now, they go on waiting.
void Leases::open(VgpuState& vgpu, Queue queue, sched::Time now) {
  std::vector<std::pair<uint32_t, unsigned>> asking;
  table_->for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, const GateState& state) {
    if (!state.waiting) return;
    asking.emplace_back(slot, engine);
    planning_->withdraw(vgpu, slot, engine, now);
  });
  const bool opened = take(vgpu, queue, now);
  if (opened) table_->set_open(vgpu, queue, true);
  for (const auto& [slot, engine] : asking) {
    if (opened) vgpu.slots[slot][engine].waiting = false;
    opened ? table_->let_in(vgpu, slot, engine, now) : queues_->ask(vgpu, slot, engine, now);
  }
}

void Leases::close_where_wanted(Queue queue, sched::Time now) {
  for (VgpuState& vgpu : table_->all()) {
    if (vgpu.leases[queue].state == Lease::State::kOpen && table_->others_want(vgpu, queue)) close(vgpu, queue, now);
  }
}

void Leases::close(VgpuState& vgpu, Queue queue, sched::Time now) {
  Lease& lease = vgpu.leases[queue];
  if (lease.state != Lease::State::kOpen) return;
  table_->set_open(vgpu, queue, false);
  lease.state = Lease::State::kClosing;
  lease.closed = now;
  table_->for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, GateState& state) {
    reader_->read(vgpu, slot, engine, now);
    const uint32_t running = GrantTable::running_at(vgpu, slot, engine);
    state.leased = running - std::min<uint32_t>(running, static_cast<uint32_t>(state.flying.size()));
  });
  lease.counted = true;
  settle(vgpu, queue, now);
}

void Leases::settle(VgpuState& vgpu, Queue queue, sched::Time now) {
  const Lease& lease = vgpu.leases[queue];
  if (lease.state != Lease::State::kClosing || !lease.counted) return;
  if (!table_->any_gate(vgpu, queue, [](const GateState& state) { return state.leased > 0; })) end(vgpu, queue, now);
}

void Leases::end(VgpuState& vgpu, Queue queue, sched::Time now) {
  Lease& lease = vgpu.leases[queue];
  if (lease.state == Lease::State::kNone) return;
  const bool metered = vgpu.account.meters[queue].runs;
  const sched::Time wall = now - lease.since;
  const Part all = {wall, metered ? lease.own + charging_->take_part(vgpu, queue, now).own : wall};
  const sched::Time held = all.own + lease.credit;
  const uint64_t kept = lease.closed ? all.of(static_cast<uint64_t>(now - lease.closed)) : 0;
  const sched::Time charged = charging_->charge(vgpu, queue, lease.busy_ns, held, static_cast<sched::Time>(kept));
  queues_->complete(vgpu, static_cast<unsigned>(queue), lease.id, charged, now);
  if (charged > 0)
    charging_->record(vgpu, TimeSliceRecord::kAllProcesses, static_cast<unsigned>(queue),
                      {lease.id, lease.since, lease.since}, now, charged);
  lease = {.credit = std::max<sched::Time>(0, held - charged)};
}

void Leases::give_up(VgpuState& vgpu, Queue queue, sched::Time now) {
  table_->for_gates(vgpu, queue, [&](uint32_t, unsigned engine, GateState& state) {
    if (state.leased == 0) return;
    if (state.overdue == 0) state.overdue_since = now;
    state.overdue += std::exchange(state.leased, 0);
    ++vgpu.account.use[engine].overruns;
  });
  vgpu.leases[queue].busy_ns = static_cast<uint64_t>(now - vgpu.leases[queue].since);
  end(vgpu, queue, now);
}

// An idle virtual GPU loses its lease, and has to ask again.
void Leases::renew(VgpuState& vgpu, Queue queue, sched::Time now) {
  bool busy = false;
  table_->for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, GateState&) {
    reader_->read(vgpu, slot, engine, now);
    busy = busy || GrantTable::running_at(vgpu, slot, engine) > 0;
  });
  if (!busy && vgpu.leases[queue].busy_ns == 0) return close(vgpu, queue, now);
  if (table_->has_priorities(vgpu, queue)) return close(vgpu, queue, now);
  end(vgpu, queue, now);
  const sched::Time credit = vgpu.leases[queue].credit;
  const bool taken = take(vgpu, queue, now);
  if (!taken) vgpu.leases[queue] = {.state = Lease::State::kOpen, .since = now};
  vgpu.leases[queue].credit = credit;
  if (!taken) close(vgpu, queue, now);
}

sched::Time Leases::renew_all(Queue queue, sched::Time now) {
  sched::Time next = kNever;
  for (VgpuState& vgpu : table_->all()) {
    const Lease& lease = vgpu.leases[queue];
    if (lease.state == Lease::State::kOpen && now - lease.since >= options_->period_ns) renew(vgpu, queue, now);
    if (lease.state == Lease::State::kOpen) next = std::min(next, lease.since + options_->period_ns);
  }
  return next;
}

}  // namespace bandsaw
