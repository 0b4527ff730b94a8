// Virtual GPUs that have an engine together: who may, and what part of the time is whose.

#include <algorithm>

#include "backend/vgpud/arbiter_core.h"

namespace bandsaw {

// Of work that took so long while this part passed.
uint64_t ArbiterCore::Part::of(uint64_t busy_ns) const {
  if (own >= wall) return busy_ns;
  return static_cast<uint64_t>(static_cast<double>(busy_ns) * static_cast<double>(own) / static_cast<double>(wall));
}

void ArbiterCore::set_sharing(const std::string& name, Sharing sharing) {
  if (Vgpu* vgpu = find(name)) vgpu->wants_corun = sharing == Sharing::kCorun;
}

void ArbiterCore::set_corun_mode(CorunMode mode, Time now) {
  if (std::exchange(corun_mode_, mode) == mode) return;
  scheduler_->set_rules(corun_rules());
  make_planner(now);
  for (auto& [name, vgpu] : vgpus_) post_mode(vgpu);
}

sched::CorunRules ArbiterCore::corun_rules() const {
  sched::CorunRules rules;
  if (corun_mode_ == CorunMode::kConsolidation) rules.most = 2;
  rules.in_order = corun_mode_ == CorunMode::kSlicesFifo;
  return rules;
}

// Programs of before have contexts of their own, which the driver would switch between. Those that have gone have left
// their gates clear.
void ArbiterCore::review_sharing(Time now) {
  for (auto& [name, vgpu] : vgpus_) {
    if (vgpu.corun == vgpu.wants_corun) continue;
    const bool used = std::any_of(vgpu.slots.begin(), vgpu.slots.end(), [&](const auto& entry) {
      const auto& gates = vgpu.board->gates[entry.first];
      return std::any_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.begun || gate.asked; });
    });
    if (vgpu.wants_corun && used) continue;
    vgpu.corun = vgpu.wants_corun;
    (void)scheduler_->set_corun(vgpu.id, vgpu.corun, now);
    post_mode(vgpu);
  }
}

// What passed since the last time, while the virtual GPU had the engine.
ArbiterCore::Part ArbiterCore::take_part(Vgpu& vgpu, Account account, Time now) {
  Meter& meter = vgpu.meters[account];
  const Part part = {now - meter.since, std::min(meters_[account].end(vgpu.id, now), now - meter.since)};
  meters_[account].begin(vgpu.id, 1, now);
  meter.since = now;
  return part;
}

// As others_want, without those that only wait for their turn in a plan.
bool ArbiterCore::others_press(const Vgpu& vgpu, Account account) const {
  bool any = false;
  for (const auto& [name, other] : vgpus_) {
    if (&other == &vgpu) continue;
    for_lanes(other, account,
              [&](uint32_t, unsigned, const Lane& lane) { any = any || (lane.waiting && !lane.admitted); });
  }
  return any;
}

ArbiterCore::Time ArbiterCore::held_since(const Vgpu& vgpu, Account account, const Granted& slice) const {
  const Meter& meter = vgpu.meters[account];
  return std::max(slice.granted, meter.runs ? meter.since : free_since_[account]);
}

// Meters run of those that are corun and have something on the engine, be it given up.
void ArbiterCore::review_meters(Account account, Time now) {
  for (auto& [name, vgpu] : vgpus_) {
    bool runs = vgpu.corun && (vgpu.leases[account].state != Lease::State::kNone || has_overdue(vgpu, account));
    if (vgpu.corun && !runs) {
      for_lanes(vgpu, account, [&](uint32_t, unsigned, const Lane& lane) { runs = runs || !lane.flying.empty(); });
    }
    Meter& meter = vgpu.meters[account];
    if (const bool calm = runs && !others_press(vgpu, account); calm != meter.calm) set_calm(vgpu, account, calm);
    if (meter.runs == runs) continue;
    if (runs) {
      meters_[account].begin(vgpu.id, 1, now);
    } else {
      (void)meters_[account].end(vgpu.id, now);
    }
    meter.runs = runs;
    meter.since = now;
  }
}

void ArbiterCore::set_calm(Vgpu& vgpu, Account account, bool calm) {
  vgpu.meters[account].calm = calm;
  if (!vgpu.board) return;
  for_lanes(vgpu, account,
            [&](uint32_t slot, unsigned engine, Lane&) { vgpu.board->gates[slot][engine].calm = calm ? 1 : 0; });
}

}  // namespace bandsaw
