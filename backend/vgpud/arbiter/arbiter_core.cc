#include "backend/vgpud/arbiter/arbiter_core.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "memory/base/futex.h"
#include "vgpu-sched/policy/promised.h"

namespace bandsaw {

bool ArbiterCore::knows_policy(const std::string& name) { return sched::make_policy(name) != nullptr; }

Status ArbiterCore::check_shares(const std::string& except, const EngineShares& shares) const {
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    const sched::Share& share = shares[engine];
    sched::Promised others;
    for (const VgpuState& vgpu : table_.all()) {
      if (vgpu.name != except) others.add(vgpu.shares[engine]);
    }
    switch (sched::check_share(share, others)) {
      case sched::Error::kNone:
        break;
      case sched::Error::kOversubscribed:
        return Status::error(ENOSPC, "{}: the shares would add up to {} %, the reservations to {} %",
                             kEngineNames[engine], share.percent + others.percent,
                             share.reservation + others.reservation);
      default:
        return Status::error(EINVAL, "{}: a share of {} %, at least {} %, at most {} % is not possible",
                             kEngineNames[engine], share.percent, share.reservation, share.cap);
    }
  }
  return {};
}

Status ArbiterCore::add(const std::string& name, const EngineShares& shares, Time now) {
  if (table_.find(name)) return Status::error(EEXIST, "'{}' is there already", name);
  if (Status status = check_shares(name, shares); options_.scheduled && !status.ok()) return status;
  VgpuState& vgpu = table_.add(name, shares);
  if (!options_.scheduled) vgpu.shares.fill({.percent = 1, .reservation = 0, .cap = 100, .priority = 0});
  if (slices_.on()) vgpu.compute_gates = ComputeGates::kTimeSliced;
  queues_.add(vgpu, now);
  slices_.set(vgpu);
  mps_shares_.set(vgpu);
  return {};
}

Status ArbiterCore::set_shares(const std::string& name, const EngineShares& shares, Time now) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu) return Status::error(ENOENT, "no virtual GPU '{}'", name);
  if (!options_.scheduled) return {};
  if (Status status = check_shares(name, shares); !status.ok()) return status;
  vgpu->shares = shares;
  slices_.set(*vgpu);
  mps_shares_.set(*vgpu);
  queues_.set_shares(*vgpu, now);
  for (unsigned queue = 0; queue < table_.queues(); ++queue) {
    if (shares[queue].cap < 100) leases_.close(*vgpu, queue, now);  // it has to ask again
  }
  return {};
}

void ArbiterCore::remove(const std::string& name, Time now) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu) return;
  detach(name, now);
  queues_.remove(*vgpu, now);
  charging_.forget(*vgpu, now);
  slices_.remove(*vgpu);
  mps_shares_.remove(*vgpu);
  planning_.forget(*vgpu);
  table_.remove(name);
}

// What is in flight runs to its end, and is charged with the next completion. What waits asks the new scheduler.
void ArbiterCore::set_policy(const std::string& policy, sched::QueueModel model, Time now) {
  slices_.leave(now);
  mps_shares_.leave(now);
  for (VgpuState& vgpu : table_.all()) {
    for (unsigned queue = 0; queue < table_.queues(); ++queue) {
      table_.set_open(vgpu, queue, false);
      vgpu.leases[queue] = {};
    }
    for (auto& [slot, gates] : vgpu.slots) {
      for (GateState& state : gates) {
        state.flying.clear();
        state.admitted = false;
        state.overdue = 0;
        state.leased = 0;
      }
    }
  }
  planning_.clear(now);
  options_.policy = policy;
  options_.model = model;
  queues_.restart(planning_.rules(), now);
  for (VgpuState& vgpu : table_.all()) {
    for (auto& [slot, gates] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        if (gates[engine].waiting) queues_.ask(vgpu, slot, engine, now);
      }
    }
  }
}

void ArbiterCore::set_sharing(const std::string& name, Sharing sharing) {
  if (VgpuState* vgpu = table_.find(name)) vgpu->wants_mps = sharing == Sharing::kMps;
}

void ArbiterCore::set_latency(const std::string& name, Time latency) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu) return;
  bypasses_.set_latency(*vgpu, latency);
  slices_.set(*vgpu);
}

void ArbiterCore::set_kernel_deadline(const std::string& name, Time deadline) {
  if (VgpuState* vgpu = table_.find(name)) vgpu->kernel_deadline = deadline;
}

void ArbiterCore::set_sm_part(const std::string& name, double part) {
  if (VgpuState* vgpu = table_.find(name)) vgpu->partition.set(part);
}

void ArbiterCore::set_planning_mode(PlanningMode mode, Time now) { planning_.set_mode(mode, now); }

void ArbiterCore::set_plan_sms(int sms, Time now) {
  if (options_.plan.gpu.sms == sms) return;
  options_.plan.gpu.sms = sms;
  planning_.restart(now);
}

void ArbiterCore::attach(const std::string& name, GrantPage* grant_page, Time now) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu) return;
  if (vgpu->grant_page) detach(name, now);
  if (!governs(*vgpu)) return release_ungoverned(*vgpu, grant_page);
  vgpu->ungoverned_page = nullptr;
  vgpu->grant_page = grant_page;
  grant_page->depth = static_cast<uint32_t>(options_.depth);
  quantum_.post(*grant_page);
  planning_.post(*vgpu);
  take_over_asks(*vgpu);
  grant_page->no_arbiter = 0;
}

// The session may have had an earlier arbiter. What was asked of that one is granted.
void ArbiterCore::take_over_asks(VgpuState& vgpu) {
  for (uint32_t slot = 0; slot < kGateSlots; ++slot) {
    vgpu.generation[slot] = vgpu.grant_page->generation[slot];
    for (unsigned engine = 0; engine < kEngines; ++engine) {
      Gate& gate = vgpu.grant_page->gates[slot][engine];
      const uint32_t asked = gate.asked, ended = gate.ended;
      gate.open = gate.no_waiters = 0;
      gate.blocks = 0;
      if (asked == 0 && ended == 0) continue;
      GateState& state = vgpu.slots[slot][engine];
      state.asked = asked;
      state.ended = ended;
      state.busy_ns = gate.busy_ns;
      GrantTable::answer(vgpu, slot, engine);
    }
  }
}

void ArbiterCore::detach(const std::string& name, Time now) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu) return;
  vgpu->ungoverned_page = nullptr;
  vgpu->sliced.runners.clear();
  if (!vgpu->grant_page) return;
  for (auto& [slot, gates] : vgpu->slots) {
    for (unsigned engine = 0; engine < kEngines; ++engine) reader_.forget(*vgpu, slot, engine, now);
  }
  vgpu->slots.clear();
  vgpu->sliced.open = false;
  vgpu->shared = {};
  for (unsigned queue = 0; queue < table_.queues(); ++queue) leases_.end(*vgpu, queue, now);
  vgpu->grant_page = nullptr;
}

void ArbiterCore::set_channel_groups(const std::string& name, uint32_t slot, uint32_t count, Time) {
  if (VgpuState* vgpu = table_.find(name)) HardwareSlices::set_groups(*vgpu, slot, count);
}

void ArbiterCore::forget_channel_groups(const std::string& name, uint32_t slot, Time) {
  if (VgpuState* vgpu = table_.find(name)) HardwareSlices::forget_groups(*vgpu, slot);
}

void ArbiterCore::time_slice_failed(const std::string& name, uint32_t slot, const Status& error, Time) {
  if (VgpuState* vgpu = table_.find(name)) HardwareSlices::order_failed(*vgpu, slot, error);
}

bool ArbiterCore::time_slice_changed(const std::string& name, uint32_t slot, Time now) {
  VgpuState* vgpu = table_.find(name);
  return vgpu && HardwareSlices::found_changed(*vgpu, slot, now, &ends_);
}

// A slot that is pending: its runner asks, or has work that ended, or has gone.
void ArbiterCore::on_pending(const std::string& name, Time now) {
  VgpuState* vgpu = table_.find(name);
  if (!vgpu || !vgpu->grant_page) return;
  planning_.note_concurrency(now);
  for (uint32_t word = 0; word < vgpu->grant_page->pending.size(); ++word) {
    uint64_t bits = vgpu->grant_page->pending[word].exchange(0);
    for (; bits != 0; bits &= bits - 1) {
      read_slot(*vgpu, 64 * word + static_cast<uint32_t>(std::countr_zero(bits)), now);
    }
  }
}

void ArbiterCore::read_slot(VgpuState& vgpu, uint32_t slot, Time now) {
  const uint32_t generation = vgpu.grant_page->generation[slot];
  if (generation != std::exchange(vgpu.generation[slot], generation) && vgpu.slots.contains(slot)) {
    for (unsigned engine = 0; engine < kEngines; ++engine) reader_.forget(vgpu, slot, engine, now);
    vgpu.slots.erase(slot);
    for (unsigned queue = 0; queue < table_.queues(); ++queue) leases_.settle(vgpu, queue, now);
  }
  for (unsigned engine = 0; engine < kEngines; ++engine) read_gate(vgpu, slot, engine, now);
  planning_.snapshot(vgpu, slot, now);
}

void ArbiterCore::read_gate(VgpuState& vgpu, uint32_t slot, unsigned engine, Time now) {
  if (engine == kCompute) {
    switch (vgpu.compute_gates) {
      case ComputeGates::kQueued:
        break;
      case ComputeGates::kBypass:
        return bypasses_.read(vgpu, slot, now);
      case ComputeGates::kMpsShared:
        return mps_shares_.read(vgpu, slot, now);
      case ComputeGates::kTimeSliced:
        return slices_.read(vgpu, slot, now);
    }
  }
  reader_.read(vgpu, slot, engine, now);
  leases_.settle(vgpu, table_.queue_of(engine), now);
}

// A virtual GPU becomes MPS once its time-sliced programs have gone: they have contexts of their own, and the driver
// would switch between these. A program that has gone leaves its gates clear.
void ArbiterCore::review_sharing(Time now) {
  for (VgpuState& vgpu : table_.all()) {
    if (vgpu.mps == vgpu.wants_mps) continue;
    if (vgpu.wants_mps && GrantTable::has_programs(vgpu)) continue;
    vgpu.mps = vgpu.wants_mps;
    queues_.set_mps(vgpu, now);
    planning_.post(vgpu);
  }
}

// With policy "none" only MPS virtual GPUs are governed, while their mode has rules; the others run without asking.
bool ArbiterCore::governs(const VgpuState& vgpu) const {
  return options_.scheduled || (planning_.mode() != PlanningMode::kMps && vgpu.mps);
}

void ArbiterCore::review_governed(Time now) {
  if (options_.scheduled) return;
  for (VgpuState& vgpu : table_.all()) {
    if (vgpu.grant_page && !governs(vgpu)) {
      GrantPage* const grant_page = vgpu.grant_page;
      detach(vgpu.name, now);
      release_ungoverned(vgpu, grant_page);
    } else if (vgpu.ungoverned_page && governs(vgpu)) {
      attach(vgpu.name, std::exchange(vgpu.ungoverned_page, nullptr), now);
    }
  }
}

void ArbiterCore::release_ungoverned(VgpuState& vgpu, GrantPage* grant_page) {
  vgpu.ungoverned_page = grant_page;
  grant_page->planned = grant_page->slicing_off = 0;
  grant_page->no_arbiter = 1;
  for (auto& gates : grant_page->gates) {
    for (Gate& gate : gates) {
      if (gate.asked != 0) futex_wake(&gate.granted);
    }
  }
}

// Grants what the scheduler gives out; returns when to ask it again.
ArbiterCore::Time ArbiterCore::dispatch(Queue queue, Time now) {
  for (;;) {
    const sched::Answer answer = queues_.next(queue, now);
    if (answer.kind == sched::Answer::Kind::kHold) return kNever;
    if (answer.kind == sched::Answer::Kind::kWait) return answer.until;
    if (!planning_.admit(answer.request, now)) queues_.grant(answer.request, now);
  }
}

ArbiterCore::Time ArbiterCore::run_queue(Queue queue, Time now) {
  leases_.close_where_wanted(queue, now);
  leases_.open_for_one_alone(queue, now);
  Time next = dispatch(queue, now);
  next = std::min(next, planning_.follow(queue, now));
  next = std::min(next, leases_.renew_all(queue, now));
  next = std::min(next, planning_.review_short_work(queue, now));
  planning_.note_parts();
  charging_.review_meters(queue, now);
  return std::min(next, overdue_.give_up(queue, now));  // last: what was granted or closed just now is timed too
}

ArbiterCore::Time ArbiterCore::run(Time now) {
  quantum_.fit(now);
  review_sharing(now);
  slices_.leave_if_impossible(now);
  Time next = bypasses_.review(now);
  next = std::min(next, mps_shares_.review(now));
  review_governed(now);
  next = std::min(next, slices_.review(now));
  for (unsigned queue = 0; queue < table_.queues(); ++queue) next = std::min(next, run_queue(queue, now));
  planning_.note_concurrency(now);
  others_work_.post(now);
  return std::min(next, deadlines_.review(now, &ends_));
}

bool ArbiterCore::works(const std::string& name) {
  const VgpuState* const vgpu = table_.find(name);
  if (!vgpu || !vgpu->grant_page) return false;
  for (const auto& gates : vgpu->grant_page->gates) {
    for (const Gate& gate : gates) {
      if (gate.begun != gate.ended || gate.asked != gate.granted) return true;
    }
  }
  return false;
}

std::vector<VgpuUse> ArbiterCore::use() const {
  std::vector<VgpuUse> all;
  for (const VgpuState& vgpu : table_.all()) {
    VgpuUse& use =
        all.emplace_back(VgpuUse{vgpu.name, vgpu.shares, vgpu.account.use, bypasses_.latency_means(vgpu),
                                 static_cast<uint64_t>(slices_.latency_cost(vgpu)), 0, slices_.keeps_engine(vgpu)});
    for (const auto& [slot, runner] : vgpu.sliced.runners) use.channel_groups += runner.groups;
    for (const auto& [slot, gates] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        use.engines[engine].waiting += gates[engine].waiting;
        use.engines[engine].in_flight +=
            std::max<uint32_t>(static_cast<uint32_t>(gates[engine].flying.size()),
                               vgpu.grant_page ? GrantTable::running_at(vgpu, slot, engine) : 0);
      }
    }
  }
  return all;
}

}  // namespace bandsaw
