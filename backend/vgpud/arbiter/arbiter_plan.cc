// Which of the MPS virtual GPUs' long kernels go on beside each other: where a mode plans, an ask that the policy
// lets through takes part in the plan, and is granted when the plan wants its next grid slice.
//
// For the scheduler, such an ask is in flight from then on: it is charged what its time slice takes, and who needs the
// engine for itself waits for its end. One that the policy does not let through takes no part.

#include <algorithm>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/futex.h"

namespace bandsaw {

using sched::Engine;

namespace {

CoPlanner::Place place_of(sched::VgpuId vgpu, uint32_t slot) { return CoPlanner::Place{vgpu} << 32 | slot; }

}  // namespace

void ArbiterCore::make_planner(Time now) {
  for (auto& [name, vgpu] : vgpus_) {
    for (auto& [slot, states] : vgpu.slots) {
      if (states[kCompute].admitted) grant_ask(vgpu, slot, kCompute, {}, now);
      for (Granted& slice : states[kCompute].flying) slice.planned = 0;
      states[kCompute].waits_for_room = false;
    }
  }
  planner_ = CoPlanner::make(planning_mode_, options_.plan);
}

// Tells the runners of this virtual GPU, on the grant page, what the planning mode wants of them.
void ArbiterCore::post_mode(Vgpu& vgpu) {
  if (!vgpu.grant_page) return;
  const bool whole = hardware_slices_ || (planning_mode_ == PlanningMode::kConsolidation && vgpu.mps);
  vgpu.grant_page->slicing_off = whole ? 1 : 0;
  vgpu.grant_page->planned = planner_ && vgpu.mps && !vgpu.bypass.on ? 1 : 0;
  if (planner_) return;
  for (auto& gates : vgpu.grant_page->gates) gates[kCompute].resident = 0;
}

// True: the ask joins the plan, and the plan will grant it.
bool ArbiterCore::admit(const sched::Request& request, Time now) {
  const auto found = waiting_.find(request.id);
  if (!planner_ || found == waiting_.end() || found->second.engine != kCompute) return false;
  const Place place = found->second;
  Vgpu& vgpu = *place.vgpu;
  EngineState& state = vgpu.slots[place.slot][kCompute];
  KernelDescriptor descriptor;
  if (!vgpu.mps || !read_descriptor(vgpu.grant_page->kernel_descriptors[place.slot], &descriptor)) return false;
  if (descriptor.call == 0 || descriptor.asked != state.asked) return false;  // of short work
  if (!planner_->ask(place_of(vgpu.id, place.slot), vgpu.id, descriptor, now)) return false;
  waiting_.erase(found);
  state.admitted = true;
  return true;
}

// Takes an ask that is not granted yet out of the scheduler.
void ArbiterCore::withdraw(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  EngineState& state = vgpu.slots[slot][engine];
  if (std::exchange(state.admitted, false)) {
    (void)scheduler_->completion(vgpu.id, static_cast<Engine>(engine), state.ask.id, 0, now);
    leave_plan(vgpu, slot, now);
  } else {
    (void)scheduler_->cancel(vgpu.id, static_cast<Engine>(engine), state.ask.id, now);
    waiting_.erase(state.ask.id);
  }
}

void ArbiterCore::leave_plan(const Vgpu& vgpu, uint32_t slot, Time now) {
  if (planner_) planner_->gone(place_of(vgpu.id, slot), now);
}

void ArbiterCore::snapshot_descriptor(const Vgpu& vgpu, uint32_t slot, Time now) {
  KernelDescriptor descriptor;
  if (planner_ && read_descriptor(vgpu.grant_page->kernel_descriptors[slot], &descriptor))
    planner_->snapshot(place_of(vgpu.id, slot), descriptor, now);
}

void ArbiterCore::tell_plan(const Vgpu& vgpu, uint32_t slot, const Granted& slice, uint64_t busy_ns, Time now) {
  if (!planner_) return;
  if (slice.planned == 0) return busy_ns > 0 ? planner_->keep_room(now) : void();
  // Time slices of one gate may overlap: then each takes what passed since the one before.
  const Time since = std::max(slice.granted, vgpu.slots.at(slot)[kCompute].last_end);
  const auto busy = static_cast<Time>(std::min<uint64_t>(busy_ns, static_cast<uint64_t>(now - since)));
  planner_->grid_slice_done(place_of(vgpu.id, slot), slice.planned, busy, slice.granted > concurrent_at_, now);
}

// Remembers when several gates had work on the compute engine at once: such times are not those of a kernel alone.
void ArbiterCore::note_concurrency(Time now) {
  if (!planner_) return;
  int count = 0;
  for (auto& [name, vgpu] : vgpus_) {
    const EngineQueue queue = engine_queue_of(kCompute);
    count += vgpu.leases[queue].state != Lease::State::kNone;
    for (const auto& [slot, states] : vgpu.slots)
      count += !states[kCompute].flying.empty() || states[kCompute].overdue > 0;
  }
  if (count > 1) concurrent_at_ = now;
}

void ArbiterCore::take_answer(const CoPlanner::Grant& grant, Time now) {
  const auto slot = static_cast<uint32_t>(grant.place);
  for (auto& [name, vgpu] : vgpus_) {
    if (vgpu.id != grant.place >> 32 || !vgpu.grant_page || !vgpu.slots.contains(slot)) continue;
    if (grant.number == 0) {
      vgpu.grant_page->gates[slot][kCompute].resident = grant.resident;
    } else if (vgpu.slots[slot][kCompute].admitted) {
      grant_ask(vgpu, slot, kCompute, grant, now);
    }
    return;
  }
}

// Returns when to be called again.
ArbiterCore::Time ArbiterCore::follow_plan(EngineQueue queue, Time now) {
  if (!planner_ || queue != engine_queue_of(kCompute)) return kNever;
  for (auto& [name, vgpu] : vgpus_) {
    for (const auto& [slot, states] : vgpu.slots) {
      const EngineState& state = states[kCompute];
      if (state.waiting && !state.admitted) planner_->hold_back(place_of(vgpu.id, slot), now);
    }
  }
  for (const CoPlanner::Grant& grant : planner_->run(now)) take_answer(grant, now);
  return planner_->next();
}

// With policy "none" only MPS virtual GPUs are governed, while their mode has rules; the others run without asking.
bool ArbiterCore::governs(const Vgpu& vgpu) const {
  return options_.scheduled || (planning_mode_ != PlanningMode::kMps && vgpu.mps);
}

void ArbiterCore::review_governed(Time now) {
  if (options_.scheduled) return;
  for (auto& [name, vgpu] : vgpus_) {
    if (vgpu.grant_page && !governs(vgpu)) {
      GrantPage* const grant_page = vgpu.grant_page;
      detach(name, now);
      release_ungoverned(vgpu, grant_page);
    } else if (vgpu.ungoverned_page && governs(vgpu)) {
      attach(name, std::exchange(vgpu.ungoverned_page, nullptr), now);
    }
  }
}

void ArbiterCore::release_ungoverned(Vgpu& vgpu, GrantPage* grant_page) {
  vgpu.ungoverned_page = grant_page;
  grant_page->planned = grant_page->slicing_off = 0;
  grant_page->no_arbiter = 1;
  for (auto& gates : grant_page->gates) {
    for (Gate& gate : gates) {
      if (gate.asked != 0) futex_wake(&gate.granted);
    }
  }
}

PlanState ArbiterCore::plan() const {
  if (!planner_) return {};
  PlanState state = planner_->state();
  for (size_t i = 0; i < state.plan.size(); ++i) {
    for (const auto& [name, vgpu] : vgpus_) {
      if (vgpu.id == state.owners[i]) state.plan[i].vgpu = name;
    }
  }
  return state;
}

}  // namespace bandsaw
