#include "backend/vgpud/arbiter/gate_reader.h"

#include <algorithm>
#include <utility>

namespace bandsaw {

void GateReader::read(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  const Gate& gate = vgpu.grant_page->gates[slot][engine];
  const GrantTable::Queue queue = table_->queue_of(engine);
  GateState& state = vgpu.slots[slot][engine];
  const uint32_t asked = gate.asked, ended = gate.ended;
  const uint64_t busy_ns = gate.busy_ns;
  const uint32_t count = ended - std::exchange(state.ended, ended);
  const uint64_t busy = busy_ns - std::exchange(state.busy_ns, busy_ns);
  if (count > 0 && count <= kTimeSlicesAtOnce * 1024) on_ended(vgpu, slot, engine, count, busy, now);
  if (asked != state.asked && !state.waiting) {
    state.asked = asked;
    // The gate is opened like the others of its virtual GPU.
    if (vgpu.leases[queue].state == Lease::State::kOpen) return table_->let_in(vgpu, slot, engine, now);
    state.waiting = true;
    state.ask = {.id = queues_->new_id(), .asked = now};
    queues_->ask(vgpu, slot, engine, now);
  }
  // Leases::close() may have counted a time slice that the runner then took back and asked for (gate_link.h).
  if (state.waiting) state.leased = std::min(state.leased, GrantTable::running_at(vgpu, slot, engine));
  if (count > 0 || state.waiting) vgpu.last_wanted[queue] = now;
}

// Time slices are taken to end in the order in which they began. First come those that were given up; then those begun
// at a gate that has been closed since; then those that were granted; last, under a lease that still counts, those
// begun at the open gate.
void GateReader::on_ended(VgpuState& vgpu, uint32_t slot, unsigned engine, uint32_t count, uint64_t busy_ns,
                          sched::Time now) {
  const GrantTable::Queue queue = table_->queue_of(engine);
  GateState& state = vgpu.slots[slot][engine];
  Lease& lease = vgpu.leases[queue];
  Account& account = vgpu.account;
  const bool metered = account.meters[queue].runs;
  const Part part = metered ? charging_->take_part(vgpu, queue, now) : Part{};
  const sched::Time own = metered ? part.own / count : 0;
  const uint64_t measured = std::min<uint64_t>(busy_ns, sched::kLongest / 2) / count;
  const uint64_t each = engine == kCompute ? part.of(measured) : charging_->of_copy(queue, measured, now);
  for (uint32_t i = 0; i < count; ++i) {
    if (state.overdue > 0) {
      if (--state.overdue == 0 && table_->others_want(vgpu, queue))
        account.debt[queue] += metered ? part.own - own * i : now - state.overdue_since;
    } else if (state.leased > 0) {
      --state.leased;
      lease.add(own, each);
      account.use[engine].busy_ns += each;
    } else if (!state.flying.empty()) {
      on_granted_ended(vgpu, slot, engine, busy_ns / count, each, {part.wall / count, own}, now);
    } else if (lease.takes()) {
      lease.add(own, each);
      account.use[engine].busy_ns += each;
      ++account.use[engine].grants;
    } else {
      account.debt[queue] += static_cast<sched::Time>(each);  // let in just before the gate was closed
    }
  }
  state.last_end = now;
}

void GateReader::on_granted_ended(VgpuState& vgpu, uint32_t slot, unsigned engine, uint64_t measured, uint64_t charged,
                                  const Part& part, sched::Time now) {
  const GrantTable::Queue queue = table_->queue_of(engine);
  GateState& state = vgpu.slots[slot][engine];
  // A time slice of short work that was given back unused (GateView::take_back) ends before planned ones that began
  // earlier.
  auto ended = state.flying.begin();
  if (measured == 0) {
    ended = std::find_if(ended, state.flying.end(), [](const GrantedSlice& one) { return one.planned == 0; });
    if (ended == state.flying.end()) ended = state.flying.begin();
  }
  const GrantedSlice slice = *ended;
  if (ended == state.flying.begin()) state.head_since = now;
  state.flying.erase(ended);
  if (engine == kCompute) planning_->tell(vgpu, slot, slice, measured, now);
  const bool metered = vgpu.account.meters[queue].runs;
  const sched::Time kept = metered ? part.own : now - charging_->held_since(vgpu, queue, state, slice);
  const sched::Time held = metered && engine != kCompute ? part.wall : kept;
  charging_->complete(vgpu, slot, engine, slice, charged, held, kept, now);
}

void GateReader::forget(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  GateState& state = vgpu.slots[slot][engine];
  // Where the gate belongs to no queue, who waits there has not asked the scheduler.
  if (state.waiting && GrantTable::is_queued(vgpu, engine)) planning_->withdraw(vgpu, slot, engine, now);
  if (engine == kCompute) planning_->leave(vgpu, slot, now);
  const GrantTable::Queue queue = table_->queue_of(engine);
  const bool metered = vgpu.account.meters[queue].runs;
  for (const GrantedSlice& slice : std::exchange(state.flying, {})) {
    const sched::Time held =
        metered ? charging_->take_part(vgpu, queue, now).own : now - charging_->held_since(vgpu, queue, state, slice);
    charging_->complete(vgpu, slot, engine, slice, static_cast<uint64_t>(now - slice.granted), held, held, now);
  }
  state = {};
}

}  // namespace bandsaw
