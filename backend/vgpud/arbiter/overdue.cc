#include "backend/vgpud/arbiter/overdue.h"

#include <algorithm>

namespace bandsaw {

sched::Time Overdue::give_up(Queue queue, sched::Time now) {
  sched::Time next = kNever;
  for (VgpuState& vgpu : table_->all()) {
    if (!table_->wants(vgpu, queue, false) && !table_->has_overdue(vgpu, queue)) continue;
    const bool others = table_->others_want(vgpu, queue);
    int own = 0;  // of its programs that wait
    table_->for_gates(vgpu, queue, [&](uint32_t, unsigned, const GateState& state) { own += state.waits_unplanned(); });
    if (!others && own == 0) continue;
    next = std::min(next, give_up_lease(vgpu, queue, now));
    table_->for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, const GateState& state) {
      if (others || own > state.waits_unplanned()) next = std::min(next, give_up_slices(vgpu, slot, engine, now));
    });
  }
  return next;
}

sched::Time Overdue::give_up_lease(VgpuState& vgpu, Queue queue, sched::Time now) {
  const Lease& lease = vgpu.leases[queue];
  if (lease.state != Lease::State::kClosing) return kNever;
  if (now - lease.since < options_->slice_timeout_ns) return lease.since + options_->slice_timeout_ns;
  leases_->give_up(vgpu, queue, now);
  return now;
}

sched::Time Overdue::give_up_slices(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  GateState& state = vgpu.slots[slot][engine];
  Account& account = vgpu.account;
  const Queue queue = table_->queue_of(engine);
  const bool metered = account.meters[queue].runs;
  if (state.overdue > 0) {
    account.debt[queue] += metered ? charging_->take_part(vgpu, queue, now).own : now - state.overdue_since;
    state.overdue_since = now;
  }
  sched::Time next = state.overdue > 0 ? now + options_->period_ns : kNever;
  while (!state.flying.empty()) {
    const GrantedSlice slice = state.flying.front();
    const sched::Time since = charging_->held_since(vgpu, queue, state, slice);
    if (now - since < options_->slice_timeout_ns) return std::min(next, since + options_->slice_timeout_ns);
    const sched::Time held = metered ? charging_->take_part(vgpu, queue, now).own : now - since;
    const sched::Time charged = held + charging_->take_debt(vgpu, queue);
    queues_->complete(vgpu, engine, slice.id, charged, now);
    ++account.use[engine].overruns;
    account.use[engine].busy_ns += static_cast<uint64_t>(charged);
    if (state.overdue++ == 0) state.overdue_since = now;
    state.flying.pop_front();
    state.head_since = now;
    planning_->tell(vgpu, slot, slice, 0, now);
    next = now;
  }
  return next;
}

}  // namespace bandsaw
