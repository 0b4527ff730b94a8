#include "backend/vgpud/arbiter/grant_table.h"

#include <algorithm>
#include <optional>

#include "memory/base/futex.h"

namespace bandsaw {

VgpuState* GrantTable::find(const std::string& name) {
  const auto found = vgpus_.find(name);
  return found == vgpus_.end() ? nullptr : &found->second;
}

const VgpuState* GrantTable::find(sched::VgpuId id) const {
  const auto found = std::ranges::find(vgpus_, id, [](const auto& entry) { return entry.second.id; });
  return found == vgpus_.end() ? nullptr : &found->second;
}

VgpuState& GrantTable::add(const std::string& name, const EngineShares& shares) {
  VgpuState& vgpu = vgpus_[name];
  vgpu.name = name;
  vgpu.id = next_vgpu_++;
  vgpu.shares = shares;
  return vgpu;
}

bool GrantTable::wants(const VgpuState& vgpu, Queue queue, bool waiting_only) const {
  if (!waiting_only && vgpu.leases[queue].state != Lease::State::kNone) return true;
  return any_gate(vgpu, queue,
                  [&](const GateState& state) { return state.waiting || (!waiting_only && !state.flying.empty()); });
}

bool GrantTable::others_want(const VgpuState& vgpu, Queue queue) const {
  return any_of_others(vgpu, queue, [](const GateState& state) { return state.waiting; });
}

bool GrantTable::others_wait_for_end(const VgpuState& vgpu, Queue queue) const {
  return any_of_others(vgpu, queue,
                       [](const GateState& state) { return state.waits_unplanned() || state.waits_for_room; });
}

bool GrantTable::goes_beside(const VgpuState& vgpu, Queue queue) const {
  if (vgpu.mps) return true;
  return options_->copies_beside && queue != kCompute && queues() > 1 && options_->policy == "band+";
}

bool GrantTable::has_overdue(const VgpuState& vgpu, Queue queue) const {
  return any_gate(vgpu, queue, [](const GateState& state) { return state.overdue > 0; });
}

bool GrantTable::has_programs(const VgpuState& vgpu) {
  return std::ranges::any_of(vgpu.slots, [&](const auto& entry) {
    const auto& gates = vgpu.grant_page->gates[entry.first];
    return std::ranges::any_of(gates, [](const Gate& gate) { return gate.begun || gate.asked; });
  });
}

bool GrantTable::only_mps() const {
  return std::ranges::none_of(all(), [](const VgpuState& vgpu) { return !vgpu.mps && has_programs(vgpu); });
}

bool GrantTable::computes(const VgpuState& vgpu) {
  return vgpu.grant_page && std::ranges::any_of(vgpu.slots, [&](const auto& entry) {
           return running_at(vgpu, entry.first, kCompute) > 0;
         });
}

bool GrantTable::waits_for_compute(const VgpuState& vgpu) {
  return std::ranges::any_of(vgpu.slots, [](const auto& entry) { return entry.second[kCompute].waiting; });
}

uint32_t GrantTable::running_at(const VgpuState& vgpu, uint32_t slot, unsigned engine) {
  const Gate& gate = vgpu.grant_page->gates[slot][engine];
  const uint32_t ended = gate.ended, running = gate.begun - ended;
  return running > kTimeSlicesAtOnce ? 0 : running;
}

int GrantTable::priority_at(const VgpuState& vgpu, uint32_t slot, unsigned engine) {
  constexpr int kMost = 20;
  return std::clamp<int>(vgpu.grant_page->gates[slot][engine].priority, -kMost, kMost);
}

bool GrantTable::has_priorities(const VgpuState& vgpu, Queue queue) const {
  if (!options_->process_priorities) return false;
  std::optional<int> first;
  bool differ = false;
  for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, const GateState& state) {
    if (state.asked == 0) return;
    const int one = priority_at(vgpu, slot, engine);
    differ |= one != first.value_or(one);
    first = one;
  });
  return differ;
}

void GrantTable::answer(VgpuState& vgpu, uint32_t slot, unsigned engine) {
  Gate& gate = vgpu.grant_page->gates[slot][engine];
  gate.granted = vgpu.slots[slot][engine].asked;
  futex_wake(&gate.granted);
}

void GrantTable::grant(VgpuState& vgpu, uint32_t slot, unsigned engine, const Planned& planned, sched::Time now) {
  GateState& state = vgpu.slots[slot][engine];
  state.waiting = state.admitted = false;
  state.ask.granted = now;
  state.ask.planned = planned.number;
  state.flying.push_back(state.ask);
  EngineUse& use = vgpu.account.use[engine];
  ++use.grants;
  use.wait_ns += static_cast<uint64_t>(now - state.ask.asked);
  Gate& gate = vgpu.grant_page->gates[slot][engine];
  if (vgpu.leases[queue_of(engine)].state == Lease::State::kOpen) gate.open = 1;
  gate.no_waiters = vgpu.account.meters[queue_of(engine)].no_waiters ? 1 : 0;
  gate.blocks = planned.blocks;
  if (planned.number != 0) gate.resident = planned.resident;
  answer(vgpu, slot, engine);
}

void GrantTable::let_in(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  Gate& gate = vgpu.grant_page->gates[slot][engine];
  vgpu.last_wanted[queue_of(engine)] = now;
  ++vgpu.account.use[engine].grants;
  gate.open = 1;
  gate.blocks = 0;
  answer(vgpu, slot, engine);
}

void GrantTable::set_open(VgpuState& vgpu, Queue queue, bool open) const {
  if (!vgpu.grant_page) return;
  for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, GateState&) {
    vgpu.grant_page->gates[slot][engine].open = open ? 1 : 0;
  });
}

void GrantTable::set_no_waiters(VgpuState& vgpu, Queue queue, bool no_waiters) const {
  if (!vgpu.grant_page) return;
  for_gates(vgpu, queue, [&](uint32_t slot, unsigned engine, GateState&) {
    vgpu.grant_page->gates[slot][engine].no_waiters = no_waiters ? 1 : 0;
  });
}

}  // namespace bandsaw
