#include "backend/vgpud/arbiter/planning.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

// Short work of which nothing is known waits for room on the SMs for this long before persistent blocks are asked to
// make some.
constexpr sched::Time kRoomWait = 500 * sched::kMicrosecond;
// Runners notice such a request within this time: they check each millisecond, and not before a millisecond of their
// own work has run.
constexpr sched::Time kRoomNotice = 2 * sched::kMillisecond;
// Single SMs are left by then, or cannot be, and all blocks are to end.
constexpr sched::Time kSmsLeft = 3 * sched::kMillisecond;
constexpr double kFarSlower = 1.5;
// The least time between two requests for one virtual GPU: each costs the others a part of a block.
constexpr sched::Time kBetweenRoomRequests = 8 * sched::kMillisecond;

CoPlanner::Place place_of(const VgpuState& vgpu, uint32_t slot) { return CoPlanner::Place{vgpu.id} << 32 | slot; }

}  // namespace

void Planning::set_mode(PlanningMode mode, sched::Time now) {
  if (std::exchange(mode_, mode) == mode) return;
  queues_->set_rules(rules());
  restart(now);
  for (VgpuState& vgpu : table_->all()) post(vgpu);
}

sched::SharingRules Planning::rules() const {
  sched::SharingRules rules;
  if (mode_ == PlanningMode::kConsolidation) rules.most = 2;
  rules.in_order = mode_ == PlanningMode::kSlicesFifo;
  return rules;
}

void Planning::restart(sched::Time now) {
  for (VgpuState& vgpu : table_->all()) {
    for (auto& [slot, gates] : vgpu.slots) {
      if (gates[kCompute].admitted) table_->grant(vgpu, slot, kCompute, {}, now);
      for (GrantedSlice& slice : gates[kCompute].flying) slice.planned = 0;
      gates[kCompute].waits_for_room = false;
    }
  }
  planner_ = CoPlanner::make(mode_, options_->plan);
}

bool Planning::shares_by_progress() const {
  return options_->scheduled && options_->policy == "band+" && options_->model == sched::QueueModel::kMrq &&
         mode_ == PlanningMode::kMps;
}

void Planning::post(VgpuState& vgpu) const {
  if (!vgpu.grant_page) return;
  const bool whole =
      vgpu.compute_gates == ComputeGates::kTimeSliced || (mode_ == PlanningMode::kConsolidation && vgpu.mps);
  vgpu.grant_page->slicing_off = whole ? 1 : 0;
  vgpu.grant_page->planned = planner_ && vgpu.mps && vgpu.compute_gates != ComputeGates::kBypass ? 1 : 0;
  if (planner_) return;
  for (auto& gates : vgpu.grant_page->gates) gates[kCompute].resident = gates[kCompute].leave_sms = 0;
}

bool Planning::admit(const sched::Request& request, sched::Time now) {
  const auto place = queues_->find(request.id);
  if (!planner_ || !place || place->engine != kCompute) return false;
  VgpuState& vgpu = *place->vgpu;
  GateState& state = vgpu.slots[place->slot][kCompute];
  KernelDescriptor descriptor;
  if (!vgpu.mps || !read_descriptor(vgpu.grant_page->kernel_descriptors[place->slot], &descriptor)) return false;
  if (descriptor.asked != state.asked) return false;
  if (descriptor.call == 0) {  // of short work
    state.ask.expected = foresee(vgpu, descriptor);
    return false;
  }
  if (!planner_->ask(place_of(vgpu, place->slot), vgpu.id, descriptor, now)) return false;
  queues_->let_go(request.id);
  state.admitted = true;
  return true;
}

// What it runs began at a gate that stood open: no plan has it.
bool Planning::has_unplanned(const VgpuState& vgpu, uint32_t slot) const {
  const bool leased =
      vgpu.leases[table_->queue_of(kCompute)].state != Lease::State::kNone || vgpu.slots.at(slot)[kCompute].leased > 0;
  return leased && GrantTable::running_at(vgpu, slot, kCompute) > 0;
}

// Such kernels of other virtual GPUs.
std::vector<KernelDescriptor> Planning::begun_at_open_gates(const VgpuState& vgpu) const {
  std::vector<KernelDescriptor> begun;
  for (const VgpuState& other : table_->all()) {
    if (&other == &vgpu || !other.mps || !other.grant_page || other.compute_gates != ComputeGates::kQueued) continue;
    for (const auto& [slot, gates] : other.slots) {
      KernelDescriptor descriptor;
      if (!has_unplanned(other, slot)) continue;
      if (read_descriptor(other.grant_page->kernel_descriptors[slot], &descriptor)) begun.push_back(descriptor);
    }
  }
  return begun;
}

// What such kernels do no grant says: those that can leave SMs do, and go on, until others are planned. A gate with
// something planned says what that is to do.
void Planning::tell_unplanned() {
  if (!options_->plan.take_sms) return;
  const std::optional<uint32_t> sms = planner_->unplanned_leave_sms();
  for (VgpuState& vgpu : table_->all()) {
    if (!vgpu.mps || !vgpu.grant_page || vgpu.compute_gates != ComputeGates::kQueued) continue;
    for (const auto& [slot, gates] : vgpu.slots) {
      const auto& flying = gates[kCompute].flying;
      const bool planned = std::ranges::any_of(flying, [](const GrantedSlice& slice) { return slice.planned != 0; });
      if (planned || !has_unplanned(vgpu, slot)) continue;
      Gate& gate = vgpu.grant_page->gates[slot][kCompute];
      if (sms.value_or(0) > gate.leave_sms) ++sm_requests_;
      gate.leave_sms = sms.value_or(0);
      gate.resident = sms ? 0 : kNoResident;
    }
  }
}

// Room is asked for at once where there will be none for longer than making some takes, or where single SMs are to be
// had and what there is makes it far slower; else of what has room only after it has taken far longer than was
// forecast, since others would lose theirs for nothing.
ExpectedWork Planning::foresee(const VgpuState& vgpu, const KernelDescriptor& descriptor) {
  const auto meets = planner_->foresee(vgpu.id, descriptor, begun_at_open_gates(vgpu));
  if (!meets) return {};
  const slice::ShortWorkForecast& forecast = meets->forecast;
  ExpectedWork expected{.shape = descriptor.shape, .known = true, .room = forecast.room, .takes = meets->takes};
  expected.slowdown = forecast.slowdown;
  expected.make_way = std::max(forecast.make_way, 1);
  expected.sms = meets->sms;
  if (meets->sms > 0 && forecast.room && forecast.slowdown > kFarSlower) {
    expected.ask_room = 0;
  } else if (forecast.room) {
    expected.ask_room = std::max(kRoomWait, 2 * std::min(meets->takes, sched::kSecond));
  } else if (forecast.begins <= kRoomNotice) {
    expected.ask_room = forecast.begins + kRoomWait;
  } else if (forecast.make_way > 0 || meets->sms > 0) {
    expected.ask_room = 0;
  }
  return expected;
}

void Planning::withdraw(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now) {
  GateState& state = vgpu.slots[slot][engine];
  if (!std::exchange(state.admitted, false)) return queues_->cancel(vgpu, engine, state.ask.id, now);
  queues_->retract(vgpu, engine, state.ask.id, now);
  leave(vgpu, slot, now);
}

void Planning::leave(const VgpuState& vgpu, uint32_t slot, sched::Time now) {
  if (planner_) planner_->gone(place_of(vgpu, slot), now);
}

void Planning::forget(const VgpuState& vgpu) {
  if (planner_) planner_->forget_owner(vgpu.id);
}

void Planning::clear(sched::Time now) {
  if (planner_) planner_->clear(now);
}

void Planning::snapshot(const VgpuState& vgpu, uint32_t slot, sched::Time now) {
  KernelDescriptor descriptor;
  if (planner_ && read_descriptor(vgpu.grant_page->kernel_descriptors[slot], &descriptor))
    planner_->snapshot(place_of(vgpu, slot), descriptor, now);
}

void Planning::tell(const VgpuState& vgpu, uint32_t slot, const GrantedSlice& slice, uint64_t busy_ns,
                    sched::Time now) {
  if (!planner_) return;
  if (slice.planned == 0) return busy_ns > 0 ? short_work_done(vgpu, slice, now) : void();
  // Time slices of one gate may overlap: then each takes what passed since the one before.
  const sched::Time since = std::max(slice.granted, vgpu.slots.at(slot)[kCompute].last_end);
  const auto busy = static_cast<sched::Time>(std::min<uint64_t>(busy_ns, static_cast<uint64_t>(now - since)));
  planner_->grid_slice_done(place_of(vgpu, slot), slice.planned, busy, slice.granted > concurrent_at_, now);
}

void Planning::short_work_done(const VgpuState& vgpu, const GrantedSlice& slice, sched::Time now) {
  planner_->keep_room(now);
  const ExpectedWork& expected = slice.expected;
  if (!expected.known) return;
  const CoPlanner::ShortWork meets{.forecast = {.room = expected.room, .slowdown = expected.slowdown},
                                   .takes = expected.takes};
  planner_->short_work_done(vgpu.id, expected.shape, meets, now - slice.granted, slice.granted > concurrent_at_);
}

// Of a gate with other work in flight nothing is known.
void Planning::note_parts() {
  for (VgpuState& vgpu : table_->all()) {
    vgpu.sm_part = 0;
    if (!planner_ || !options_->charge_by_blocks ||
        vgpu.leases[table_->queue_of(kCompute)].state != Lease::State::kNone)
      continue;
    const bool planned = std::ranges::all_of(vgpu.slots, [](const auto& slot) {
      const GateState& state = slot.second[kCompute];
      return state.overdue == 0 && state.leased == 0 &&
             std::ranges::all_of(state.flying, [](const GrantedSlice& slice) { return slice.planned != 0; });
    });
    if (planned) vgpu.sm_part = planner_->part_of(vgpu.id);
  }
}

void Planning::note_concurrency(sched::Time now) {
  if (!planner_) return;
  const Queue queue = table_->queue_of(kCompute);
  int count = 0;
  for (const VgpuState& vgpu : table_->all()) {
    count += vgpu.leases[queue].state != Lease::State::kNone;
    for (const auto& [slot, gates] : vgpu.slots)
      count += !gates[kCompute].flying.empty() || gates[kCompute].overdue > 0;
  }
  if (count > 1) concurrent_at_ = now;
}

void Planning::take_answer(const CoPlanner::Grant& grant, sched::Time now) {
  const auto slot = static_cast<uint32_t>(grant.place);
  for (VgpuState& vgpu : table_->all()) {
    if (vgpu.id != grant.place >> 32 || !vgpu.grant_page || !vgpu.slots.contains(slot)) continue;
    vgpu.grant_page->gates[slot][kCompute].leave_sms = grant.leave_sms;
    if (grant.number == 0) {
      vgpu.grant_page->gates[slot][kCompute].resident = grant.resident;
    } else if (vgpu.slots[slot][kCompute].admitted) {
      table_->grant(vgpu, slot, kCompute, {grant.number, grant.blocks, grant.resident}, now);
    }
    return;
  }
}

sched::Time Planning::follow(Queue queue, sched::Time now) {
  if (!planner_ || queue != table_->queue_of(kCompute)) return kNever;
  for (const VgpuState& vgpu : table_->all()) {
    for (const auto& [slot, gates] : vgpu.slots) {
      const GateState& state = gates[kCompute];
      if (state.waits_unplanned()) planner_->hold_back(place_of(vgpu, slot), now);
    }
  }
  for (const CoPlanner::Grant& grant : planner_->run(now)) take_answer(grant, now);
  return planner_->next();
}

// Short work is granted together with what is planned. Where persistent blocks fill the SMs it would wait there until
// they have run a whole kernel, so after a while they are asked to make room: once for each time slice, and not often.
sched::Time Planning::review_short_work(Queue queue, sched::Time now) {
  if (!planner_ || queue != table_->queue_of(kCompute)) return kNever;
  sched::Time next = kNever;
  for (VgpuState& vgpu : table_->all()) {
    for (auto& [slot, gates] : vgpu.slots) {
      GateState& state = gates[kCompute];
      state.waits_for_room = false;
      if (state.flying.empty() || state.flying.front().planned != 0 || !GrantTable::is_queued(vgpu, kCompute)) continue;
      next = std::min(next, make_room(vgpu, state, now));
    }
  }
  tell_unplanned();
  return next;
}

sched::Time Planning::make_room(VgpuState& vgpu, GateState& state, sched::Time now) {
  const GrantedSlice& slice = state.flying.front();
  const ExpectedWork& expected = slice.expected;
  const sched::Time wait = expected.known ? expected.ask_room : kRoomWait;
  if (wait == kNever) return kNever;
  const sched::Time due =
      std::max(std::max(slice.granted, state.head_since) + wait, vgpu.room_asked_at + kBetweenRoomRequests);
  if (state.room_asked_for != slice.id && now >= due) {
    state.room_asked_for = slice.id;
    vgpu.room_asked_at = now;
    planner_->leave_room(expected.make_way, expected.sms, now);
  }
  if (state.room_asked_for != slice.id) return due;
  const sched::Time from = vgpu.room_asked_at + (expected.sms > 0 ? kSmsLeft : 0), until = from + kRoomNotice;
  state.waits_for_room = now >= from && now < until;
  if (now < from) return from;
  return now < until ? until : kNever;
}

PlanState Planning::state() const {
  if (!planner_) return {};
  PlanState state = planner_->state();
  state.sm_requests += sm_requests_;
  for (size_t i = 0; i < state.plan.size(); ++i) {
    if (const VgpuState* vgpu = table_->find(static_cast<sched::VgpuId>(state.owners[i])))
      state.plan[i].vgpu = vgpu->name;
  }
  return state;
}

}  // namespace bandsaw
