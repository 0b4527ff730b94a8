// MPS virtual GPUs that have an engine together: which may, and what part of the time each is charged.

#include <algorithm>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/futex.h"

namespace bandsaw {
namespace {

// Short work waits for room on the SMs for this long before persistent blocks are asked to make some.
constexpr sched::Time kRoomWait = 500 * sched::kMicrosecond;
// Runners notice such a request within this time: they check each millisecond, and not before a millisecond of their
// own work has run.
constexpr sched::Time kRoomNotice = 2 * sched::kMillisecond;
// The least time between two requests for one virtual GPU: each costs the others a part of a block.
constexpr sched::Time kBetweenRoomRequests = 8 * sched::kMillisecond;

}  // namespace

// What is charged for work that the device measured as `busy_ns` in this time.
uint64_t ArbiterCore::Part::of(uint64_t busy_ns) const {
  if (own >= wall) return busy_ns;
  return static_cast<uint64_t>(static_cast<double>(busy_ns) * static_cast<double>(own) / static_cast<double>(wall));
}

void ArbiterCore::set_sharing(const std::string& name, Sharing sharing) {
  if (Vgpu* vgpu = find(name)) vgpu->wants_mps = sharing == Sharing::kMps;
}

void ArbiterCore::set_planning_mode(PlanningMode mode, Time now) {
  if (std::exchange(planning_mode_, mode) == mode) return;
  scheduler_->set_rules(sharing_rules());
  make_planner(now);
  for (auto& [name, vgpu] : vgpus_) post_mode(vgpu);
}

sched::SharingRules ArbiterCore::sharing_rules() const {
  sched::SharingRules rules;
  if (planning_mode_ == PlanningMode::kConsolidation) rules.most = 2;
  rules.in_order = planning_mode_ == PlanningMode::kSlicesFifo;
  return rules;
}

bool ArbiterCore::has_programs(const Vgpu& vgpu) {
  return std::any_of(vgpu.slots.begin(), vgpu.slots.end(), [&](const auto& entry) {
    const auto& gates = vgpu.grant_page->gates[entry.first];
    return std::any_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.begun || gate.asked; });
  });
}

// A virtual GPU becomes MPS once its time-sliced programs have gone: they have contexts of their own, and the driver
// would switch between these. A program that has gone leaves its gates clear.
void ArbiterCore::review_sharing(Time now) {
  for (auto& [name, vgpu] : vgpus_) {
    if (vgpu.mps == vgpu.wants_mps) continue;
    if (vgpu.wants_mps && has_programs(vgpu)) continue;
    vgpu.mps = vgpu.wants_mps;
    (void)scheduler_->set_mps(vgpu.id, vgpu.mps, now);
    post_mode(vgpu);
  }
}

// Reads the virtual GPU's meter: how much time has passed since it was read last, and what part of that is its own.
ArbiterCore::Part ArbiterCore::take_part(Vgpu& vgpu, EngineQueue queue, Time now) {
  Meter& meter = vgpu.meters[queue];
  const Part part = {now - meter.since, std::min(meters_[queue].end(vgpu.id, now), now - meter.since)};
  meters_[queue].begin(vgpu.id, 1, now);
  meter.since = now;
  return part;
}

// As others_want(), with two differences: an ask that waits for its turn in a plan does not count, and short work that
// has begun and finds no room does.
bool ArbiterCore::others_wait_for_end(const Vgpu& vgpu, EngineQueue queue) const {
  return any_of_others(
      vgpu, queue, [](const EngineState& state) { return (state.waiting && !state.admitted) || state.waits_for_room; });
}

// Short work is granted together with what is planned. Where persistent blocks fill the SMs it would wait there until
// they have run a whole kernel, so after a while they are asked to make room: once for each time slice, and not often.
// Returns when to be called again.
ArbiterCore::Time ArbiterCore::review_short_work(EngineQueue queue, Time now) {
  if (!planner_ || queue != engine_queue_of(0)) return kNever;
  Time next = kNever;
  for (auto& [name, vgpu] : vgpus_) {
    for (auto& [slot, states] : vgpu.slots) {
      EngineState& state = states[0];
      state.waits_for_room = false;
      if (state.flying.empty() || state.flying.front().planned != 0 || vgpu.bypass.on) continue;
      const Granted& slice = state.flying.front();
      const Time due =
          std::max({slice.granted, state.head_since, vgpu.room_asked_at + kBetweenRoomRequests}) + kRoomWait;
      if (state.room_asked_for != slice.id && now >= due) {
        state.room_asked_for = slice.id;
        vgpu.room_asked_at = now;
        planner_->leave_room(now);
      }
      state.waits_for_room = state.room_asked_for == slice.id && now < vgpu.room_asked_at + kRoomNotice;
      if (state.room_asked_for != slice.id) next = std::min(next, due);
      if (state.waits_for_room) next = std::min(next, vgpu.room_asked_at + kRoomNotice);
    }
  }
  return next;
}

// Since when the time slice has had the engine. The last reading of a virtual GPU's meter would be wrong: ends of its
// other time slices read the meter too.
ArbiterCore::Time ArbiterCore::held_since(const Vgpu& vgpu, EngineQueue queue, const EngineState& state,
                                          const Granted& slice) const {
  return std::max(slice.granted, vgpu.meters[queue].runs ? state.head_since : free_since_[queue]);
}

// A meter runs for each MPS virtual GPU that has something on the engine, even if the arbiter has given that up.
void ArbiterCore::review_meters(EngineQueue queue, Time now) {
  for (auto& [name, vgpu] : vgpus_) {
    bool runs = vgpu.mps && (vgpu.leases[queue].state != Lease::State::kNone || has_overdue(vgpu, queue));
    if (vgpu.mps && !runs) {
      for_engines(vgpu, queue,
                  [&](uint32_t, unsigned, const EngineState& state) { runs = runs || !state.flying.empty(); });
    }
    Meter& meter = vgpu.meters[queue];
    if (const bool no_waiters = runs && !others_wait_for_end(vgpu, queue); no_waiters != meter.no_waiters) {
      set_no_waiters(vgpu, queue, no_waiters);
    }
    if (meter.runs == runs) continue;
    if (runs) {
      meters_[queue].begin(vgpu.id, 1, now);
    } else {
      (void)meters_[queue].end(vgpu.id, now);
    }
    meter.runs = runs;
    meter.since = now;
  }
}

void ArbiterCore::set_no_waiters(Vgpu& vgpu, EngineQueue queue, bool no_waiters) {
  vgpu.meters[queue].no_waiters = no_waiters;
  if (!vgpu.grant_page) return;
  for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState&) {
    vgpu.grant_page->gates[slot][engine].no_waiters = no_waiters ? 1 : 0;
  });
}

}  // namespace bandsaw
