#include "backend/vgpud/arbiter/unqueued_gates.h"

#include <utility>

namespace bandsaw {

void UnqueuedGates::take_out(VgpuState& vgpu, ComputeGates where, sched::Time now) {
  const GrantTable::Queue queue = table_->queue_of(kCompute);
  leases_->close(vgpu, queue, now);
  for (auto& [slot, gates] : vgpu.slots) {
    reader_->forget(vgpu, slot, kCompute, now);
    const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    gates[kCompute].ended = gate.ended;
    gates[kCompute].busy_ns = gate.busy_ns;
    gates[kCompute].asked = gate.granted;
  }
  leases_->settle(vgpu, queue, now);
  vgpu.compute_gates = where;
  planning_->post(vgpu);
}

void UnqueuedGates::put_back(VgpuState& vgpu, sched::Time now) {
  const GrantTable::Queue queue = table_->queue_of(kCompute);
  for (auto& [slot, gates] : vgpu.slots) {
    Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    gate.open = 0;
    gate.no_waiters = vgpu.account.meters[queue].no_waiters ? 1 : 0;
    GateState& state = gates[kCompute];
    (void)take_ended(vgpu, slot);  // what has ended is not overdue
    state.overdue = GrantTable::running_at(vgpu, slot, kCompute);
    state.overdue_since = now;
    if (std::exchange(state.waiting, false)) state.asked = gate.granted;  // it is read again
  }
  vgpu.compute_gates = ComputeGates::kQueued;
  planning_->post(vgpu);
  for (auto& [slot, gates] : vgpu.slots) reader_->read(vgpu, slot, kCompute, now);
  leases_->settle(vgpu, queue, now);
}

UnqueuedGates::Ended UnqueuedGates::take_ended(VgpuState& vgpu, uint32_t slot) {
  const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  GateState& state = vgpu.slots[slot][kCompute];
  const uint32_t ended = gate.ended;
  const uint64_t busy_ns = gate.busy_ns;
  return {ended - std::exchange(state.ended, ended), busy_ns - std::exchange(state.busy_ns, busy_ns)};
}

bool UnqueuedGates::take_ask(VgpuState& vgpu, uint32_t slot) {
  const uint32_t asked = vgpu.grant_page->gates[slot][kCompute].asked;
  return std::exchange(vgpu.slots[slot][kCompute].asked, asked) != asked;
}

}  // namespace bandsaw
