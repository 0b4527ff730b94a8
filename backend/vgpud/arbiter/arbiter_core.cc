#include "backend/vgpud/arbiter/arbiter_core.h"

#include <algorithm>

#include "memory/base/futex.h"
#include "vgpu-sched/policy/promised.h"

namespace bandsaw {
namespace {

using sched::Answer;
using sched::Engine;
using sched::kMillisecond;

// An engine that others wanted a moment ago is not left open: they are probably in the middle of something.
constexpr ArbiterCore::Time kQuiet = 10 * kMillisecond;
// All who want the GPU are to have their turn in this time, so the more they are the shorter is a time slice of short
// work; but not shorter than this part of the quantum, or switching would cost too much.
constexpr ArbiterCore::Time kRound = 16 * kMillisecond;
constexpr ArbiterCore::Time kQuantumParts = 4;

}  // namespace

ArbiterCore::ArbiterCore(const ArbiterOptions& options) : options_(options), quantum_(options.quantum_ns) {
  make_scheduler(0);
}

bool ArbiterCore::knows_policy(const std::string& name) { return sched::make_policy(name) != nullptr; }

void ArbiterCore::make_scheduler(Time now) {
  waiting_.clear();
  const sched::SchedulerOptions scheduler{options_.model, options_.depth, options_.period_ns};
  sched::PolicyOptions policy;
  policy.period = options_.period_ns;
  policy.wait = options_.wait_ns;
  scheduler_ =
      std::make_unique<sched::Scheduler>(scheduler, [&] { return sched::make_policy(options_.policy, policy); });
  scheduler_->set_rules(sharing_rules());
  for (auto& [name, vgpu] : vgpus_) enter(vgpu, now);
}

// The scheduler adds a virtual GPU with one share for all queues. The smallest of its shares fits every queue, because
// the sums were checked; then each queue gets its own.
void ArbiterCore::enter(const Vgpu& vgpu, Time now) {
  sched::Share least;
  least.percent = 100;
  for (unsigned a = 0; a < engine_queues(); ++a) least.percent = std::min(least.percent, vgpu.shares[a].percent);
  (void)scheduler_->add(vgpu.id, least, now);
  for (unsigned a = 0; a < engine_queues(); ++a) {
    (void)scheduler_->set_share(vgpu.id, static_cast<Engine>(a), vgpu.shares[a], now);
  }
  (void)scheduler_->set_mps(vgpu.id, vgpu.mps, now);
  weights_.set(vgpu.id, vgpu.shares[kCompute], vgpu.latency);
}

ArbiterCore::Vgpu* ArbiterCore::find(const std::string& name) {
  const auto found = vgpus_.find(name);
  return found == vgpus_.end() ? nullptr : &found->second;
}

Status ArbiterCore::check_shares(const std::string& except, const EngineShares& shares) const {
  for (unsigned engine = 0; engine < kEngines; ++engine) {
    const sched::Share& share = shares[engine];
    sched::Promised others;
    for (const auto& [name, vgpu] : vgpus_) {
      if (name != except) others.add(vgpu.shares[engine]);
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
  if (find(name)) return Status::error(EEXIST, "'{}' is there already", name);
  if (Status status = check_shares(name, shares); options_.scheduled && !status.ok()) return status;
  Vgpu& vgpu = vgpus_[name];
  vgpu.name = name;
  vgpu.id = next_vgpu_++;
  vgpu.shares = shares;
  if (!options_.scheduled) vgpu.shares.fill({.percent = 1, .reservation = 0, .cap = 100, .priority = 0});
  enter(vgpu, now);
  return {};
}

Status ArbiterCore::set_shares(const std::string& name, const EngineShares& shares, Time now) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return Status::error(ENOENT, "no virtual GPU '{}'", name);
  if (!options_.scheduled) return {};
  if (Status status = check_shares(name, shares); !status.ok()) return status;
  vgpu->shares = shares;
  weights_.set(vgpu->id, shares[kCompute], vgpu->latency);
  for (unsigned a = 0; a < engine_queues(); ++a) {
    (void)scheduler_->set_share(vgpu->id, static_cast<Engine>(a), shares[a], now);
    if (shares[a].cap < 100) close(*vgpu, a, now);  // it has to ask again
  }
  return {};
}

void ArbiterCore::remove(const std::string& name, Time now) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  detach(name, now);
  (void)scheduler_->remove(vgpu->id, now);
  for (auto& meter : meters_) (void)meter.end(vgpu->id, now);
  weights_.remove(vgpu->id);
  if (planner_) planner_->forget_owner(vgpu->id);
  vgpus_.erase(name);
}

// What is in flight runs to its end, and is charged with the next completion. What waits asks the new scheduler.
void ArbiterCore::set_policy(const std::string& policy, sched::QueueModel model, Time now) {
  if (hardware_slices_) leave_time_slices(now);
  for (auto& [name, vgpu] : vgpus_) {
    for (unsigned a = 0; a < engine_queues(); ++a) {
      set_open(vgpu, a, false);
      vgpu.leases[a] = {};
    }
    for (auto& [slot, states] : vgpu.slots) {
      for (EngineState& state : states) {
        state.flying.clear();
        state.admitted = false;
        state.overdue = 0;
        state.leased = 0;
      }
    }
  }
  if (planner_) planner_->clear(now);
  options_.policy = policy;
  options_.model = model;
  make_scheduler(now);
  for (auto& [name, vgpu] : vgpus_) {
    for (auto& [slot, states] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        if (states[engine].waiting) arrive(vgpu, slot, engine, now);
      }
    }
  }
}

void ArbiterCore::attach(const std::string& name, GrantPage* grant_page, Time now) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  if (vgpu->grant_page) detach(name, now);
  if (!governs(*vgpu)) return release_ungoverned(*vgpu, grant_page);
  vgpu->ungoverned_page = nullptr;
  vgpu->grant_page = grant_page;
  grant_page->depth = static_cast<uint32_t>(options_.depth);
  grant_page->quantum_ns = static_cast<uint64_t>(quantum_);
  post_mode(*vgpu);
  // The session may have had an earlier arbiter. What was asked of that one is granted.
  for (uint32_t slot = 0; slot < kGateSlots; ++slot) {
    vgpu->generation[slot] = grant_page->generation[slot];
    for (unsigned engine = 0; engine < kEngines; ++engine) {
      Gate& gate = grant_page->gates[slot][engine];
      const uint32_t asked = gate.asked, ended = gate.ended;
      gate.open = gate.no_waiters = 0;
      gate.blocks = 0;
      if (asked == 0 && ended == 0) continue;
      EngineState& state = vgpu->slots[slot][engine];
      state.asked = asked;
      state.ended = ended;
      state.busy_ns = gate.busy_ns;
      gate.granted = asked;
      futex_wake(&gate.granted);
    }
  }
  grant_page->no_arbiter = 0;
}

void ArbiterCore::detach(const std::string& name, Time now) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  vgpu->ungoverned_page = nullptr;
  vgpu->channel_groups.clear();
  vgpu->failed_time_slices.clear();
  vgpu->ended_runners.clear();
  if (!vgpu->grant_page) return;
  for (auto& [slot, states] : vgpu->slots) {
    for (unsigned engine = 0; engine < kEngines; ++engine) forget_engine(*vgpu, slot, engine, now);
  }
  vgpu->slots.clear();
  vgpu->channel_groups.clear();
  vgpu->compute_open = false;
  for (unsigned a = 0; a < engine_queues(); ++a) end_lease(*vgpu, a, now);
  vgpu->grant_page = nullptr;
}

// True: an ask of this virtual GPU waits, or (if not `waiting_only`) something of it is in flight.
bool ArbiterCore::wants(const Vgpu& vgpu, EngineQueue queue, bool waiting_only) const {
  if (!waiting_only && vgpu.leases[queue].state != Lease::State::kNone) return true;
  bool any = false;
  for_engines(vgpu, queue, [&](uint32_t, unsigned, const EngineState& state) {
    any = any || state.waiting || (!waiting_only && !state.flying.empty());
  });
  return any;
}

bool ArbiterCore::others_want(const Vgpu& vgpu, EngineQueue queue) const {
  return any_of_others(vgpu, queue, [](const EngineState& state) { return state.waiting; });
}

void ArbiterCore::grant(const sched::Request& request, Time now) {
  const auto found = waiting_.find(request.id);
  if (found == waiting_.end()) return;
  const Place place = found->second;
  waiting_.erase(found);
  grant_ask(*place.vgpu, place.slot, place.engine, {}, now);
}

// The ask that waits may begin.
void ArbiterCore::grant_ask(Vgpu& vgpu, uint32_t slot, unsigned engine, const CoPlanner::Grant& planned, Time now) {
  EngineState& state = vgpu.slots[slot][engine];
  state.waiting = state.admitted = false;
  state.ask.granted = now;
  state.ask.planned = planned.number;
  state.flying.push_back(state.ask);
  EngineUse& use = vgpu.use[engine];
  ++use.grants;
  use.wait_ns += static_cast<uint64_t>(now - state.ask.asked);
  Gate& gate = vgpu.grant_page->gates[slot][engine];
  if (vgpu.leases[engine_queue_of(engine)].state == Lease::State::kOpen) gate.open = 1;
  gate.no_waiters = vgpu.meters[engine_queue_of(engine)].no_waiters ? 1 : 0;
  gate.blocks = planned.blocks;
  if (planned.number != 0) gate.resident = planned.resident;
  gate.granted = state.asked;
  futex_wake(&gate.granted);
}

// Grants what the scheduler gives out; returns when to ask it again.
ArbiterCore::Time ArbiterCore::dispatch(EngineQueue queue, Time now) {
  for (;;) {
    const Answer answer = scheduler_->next(static_cast<Engine>(queue), now);
    if (answer.kind == Answer::Kind::kHold) return kNever;
    if (answer.kind == Answer::Kind::kWait) return answer.until;
    if (!admit(answer.request, now)) grant(answer.request, now);
  }
}

// Where a time slice has held the engine for longer than the time slice timeout while others wait, the scheduler goes
// on without it; it is charged on until it ends.
ArbiterCore::Time ArbiterCore::give_up_overdue(EngineQueue queue, Time now) {
  Time next = kNever;
  for (auto& [name, vgpu] : vgpus_) {
    if (!wants(vgpu, queue, false) && !has_overdue(vgpu, queue)) continue;
    if (!others_want(vgpu, queue)) continue;
    Lease& lease = vgpu.leases[queue];
    if (lease.state == Lease::State::kClosing) {
      if (now - lease.since >= options_.slice_timeout_ns) {
        give_up_lease(vgpu, queue, now);
      } else {
        next = std::min(next, lease.since + options_.slice_timeout_ns);
      }
    }
    for_engines(vgpu, queue, [&](uint32_t slot, unsigned engine, EngineState&) {
      next = std::min(next, give_up_time_slices(vgpu, slot, engine, now));
    });
  }
  return next;
}

ArbiterCore::Time ArbiterCore::give_up_time_slices(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  EngineState& state = vgpu.slots[slot][engine];
  const EngineQueue queue = engine_queue_of(engine);
  const bool metered = vgpu.meters[queue].runs;
  if (state.overdue > 0) {
    vgpu.debt[queue] += metered ? take_part(vgpu, queue, now).own : now - state.overdue_since;
    state.overdue_since = now;
  }
  while (!state.flying.empty()) {
    const Granted slice = state.flying.front();
    const Time since = held_since(vgpu, queue, state, slice);
    if (now - since < options_.slice_timeout_ns) return since + options_.slice_timeout_ns;
    const Time held = metered ? take_part(vgpu, queue, now).own : now - since;
    const Time charged = held + take_debt(vgpu, queue);
    (void)scheduler_->completion(vgpu.id, static_cast<Engine>(engine), slice.id, charged, now);
    ++vgpu.use[engine].overruns;
    vgpu.use[engine].busy_ns += static_cast<uint64_t>(charged);
    if (state.overdue++ == 0) state.overdue_since = now;
    state.flying.pop_front();
    state.head_since = now;
    tell_plan(vgpu, slot, slice, 0, now);
    free_since_[queue] = now;
  }
  return state.overdue > 0 ? now + options_.period_ns : kNever;
}

bool ArbiterCore::has_overdue(const Vgpu& vgpu, EngineQueue queue) const {
  bool any = false;
  for_engines(vgpu, queue, [&](uint32_t, unsigned, const EngineState& state) { any = any || state.overdue > 0; });
  return any;
}

// Opens the gates of a virtual GPU that has been alone on the queue for a while, so that it need not ask.
void ArbiterCore::maybe_open(EngineQueue queue, Time now) {
  Vgpu* alone = nullptr;
  for (auto& [name, vgpu] : vgpus_) {
    if (wants(vgpu, queue, false) || has_overdue(vgpu, queue)) {
      if (alone) return;
      alone = &vgpu;
    } else if (vgpu.last_wanted[queue] != 0 && now - vgpu.last_wanted[queue] < kQuiet) {
      return;
    }
  }
  if (!alone || alone->leases[queue].state != Lease::State::kNone || alone->shares[queue].cap < 100) return;
  open(*alone, queue, now);
}

void ArbiterCore::fit_quantum(Time now) {
  // A virtual GPU counts as active for a period after its last work, so that short pauses do not change the quantum.
  Time active = 0;
  for (const auto& [name, vgpu] : vgpus_) {
    const Time last = *std::max_element(vgpu.last_wanted.begin(), vgpu.last_wanted.end());
    bool now_too = last != 0 && now - last < options_.period_ns;
    for (unsigned queue = 0; queue < engine_queues() && !now_too; ++queue) now_too = wants(vgpu, queue, true);
    active += now_too;
  }
  const Time most = options_.quantum_ns;
  const Time fitting = std::clamp(kRound / std::max<Time>(active, 1), most / kQuantumParts, most);
  if (std::exchange(quantum_, fitting) == fitting) return;
  for (auto& [name, vgpu] : vgpus_) {
    if (vgpu.grant_page) vgpu.grant_page->quantum_ns = static_cast<uint64_t>(fitting);
  }
}

ArbiterCore::Time ArbiterCore::run(Time now) {
  fit_quantum(now);
  review_sharing(now);
  Time next = review_bypasses(now);
  review_governed(now);
  next = std::min(next, review_time_slices(now));
  for (unsigned queue = 0; queue < engine_queues(); ++queue) {
    next = std::min(next, give_up_overdue(queue, now));
    for (auto& [name, vgpu] : vgpus_) {
      if (vgpu.leases[queue].state == Lease::State::kOpen && others_want(vgpu, queue)) close(vgpu, queue, now);
    }
    maybe_open(queue, now);
    next = std::min(next, dispatch(queue, now));
    next = std::min(next, follow_plan(queue, now));
    next = std::min(next, renew_leases(queue, now));
    next = std::min(next, review_short_work(queue, now));
    review_meters(queue, now);
  }
  note_concurrency(now);
  return next;
}

}  // namespace bandsaw
