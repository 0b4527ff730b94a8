// What the arbiter reads at the gates, and what it charges for it.
//
// on_pending() runs when a virtual GPU's doorbell was written. It takes the bits of the pending bitmap and reads the
// gates of those slots: time slices that have ended since the last time are completed, a new ask goes to the scheduler.
// Gates are also read without a bit when a lease is renewed or closed (arbiter_lease.cc), since runners at an open gate
// stay silent.

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/futex.h"

namespace bandsaw {
namespace {

using sched::Engine;
using sched::kMicrosecond;
using sched::kMillisecond;

// More time slices than this cannot run at one gate: counters that say so are nonsense.
constexpr uint32_t kTimeSlicesAtOnce = 64;
// A time slice holds the engine a little longer than its measured time: contexts are switched, and the runner needs
// time itself. The usual difference is kUsualDelay and 1 / kUsualPart of the time. What exceeds it is summed up, and
// the part of the sum above kUnderreportedMost is charged.
constexpr ArbiterCore::Time kUsualDelay = 200 * kMicrosecond, kUnderreportedMost = 50 * kMillisecond;
constexpr ArbiterCore::Time kUsualPart = 8;
constexpr size_t kTraceMax = 1 << 20;

}  // namespace

void ArbiterCore::on_pending(const std::string& name, Time now) {
  Vgpu* vgpu = find(name);
  if (!vgpu || !vgpu->grant_page) return;
  note_concurrency(now);
  for (uint32_t word = 0; word < vgpu->grant_page->pending.size(); ++word) {
    uint64_t bits = vgpu->grant_page->pending[word].exchange(0);
    for (; bits != 0; bits &= bits - 1) {
      read_slot(*vgpu, 64 * word + static_cast<uint32_t>(std::countr_zero(bits)), now);
    }
  }
}

void ArbiterCore::read_slot(Vgpu& vgpu, uint32_t slot, Time now) {
  const uint32_t generation = vgpu.grant_page->generation[slot];
  if (generation != std::exchange(vgpu.generation[slot], generation) && vgpu.slots.contains(slot)) {
    for (unsigned engine = 0; engine < kEngines; ++engine) forget_engine(vgpu, slot, engine, now);
    vgpu.slots.erase(slot);
    for (unsigned queue = 0; queue < engine_queues(); ++queue) settle_closing(vgpu, queue, now);
  }
  for (unsigned engine = 0; engine < kEngines; ++engine) read_gate(vgpu, slot, engine, now);
  snapshot_descriptor(vgpu, slot, now);
}

// How many time slices of the gate have begun and not ended; 0 if its counters are nonsense.
uint32_t ArbiterCore::running_at(const Vgpu& vgpu, uint32_t slot, unsigned engine) const {
  const Gate& gate = vgpu.grant_page->gates[slot][engine];
  const uint32_t ended = gate.ended, running = gate.begun - ended;
  return running > kTimeSlicesAtOnce ? 0 : running;
}

void ArbiterCore::read_gate(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  if (engine == 0 && hardware_slices_) return read_sliced_gate(vgpu, slot, now);
  if (bypasses(vgpu, engine)) return read_bypass_gate(vgpu, slot, now);
  const Gate& gate = vgpu.grant_page->gates[slot][engine];
  EngineState& state = vgpu.slots[slot][engine];
  const uint32_t asked = gate.asked, ended = gate.ended;
  const uint64_t busy_ns = gate.busy_ns;
  const uint32_t count = ended - std::exchange(state.ended, ended);
  const uint64_t busy = busy_ns - std::exchange(state.busy_ns, busy_ns);
  if (count > 0 && count <= kTimeSlicesAtOnce * 1024) on_ended(vgpu, slot, engine, count, busy, now);
  if (asked != state.asked && !state.waiting) {
    state.asked = asked;
    if (vgpu.leases[engine_queue_of(engine)].state == Lease::State::kOpen) return let_in(vgpu, slot, engine, now);
    state.waiting = true;
    state.ask = {next_request_++, now, 0};
    arrive(vgpu, slot, engine, now);
  }
  // close() may have counted a time slice that the runner then took back and asked for (gate_link.h).
  if (state.waiting) state.leased = std::min(state.leased, running_at(vgpu, slot, engine));
  if (count > 0 || state.waiting) vgpu.last_wanted[engine_queue_of(engine)] = now;
  settle_closing(vgpu, engine_queue_of(engine), now);
}

// The ask of a gate whose virtual GPU has an open lease: the gate is opened like its others.
void ArbiterCore::let_in(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  Gate& gate = vgpu.grant_page->gates[slot][engine];
  vgpu.last_wanted[engine_queue_of(engine)] = now;
  ++vgpu.use[engine].grants;
  gate.open = 1;
  gate.blocks = 0;
  gate.granted = vgpu.slots[slot][engine].asked;
  futex_wake(&gate.granted);
}

void ArbiterCore::arrive(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  const EngineState& state = vgpu.slots[slot][engine];
  const sched::Request request{
      .id = state.ask.id, .vgpu = vgpu.id, .engine = static_cast<Engine>(engine), .estimate = 0, .priority = 0};
  if (scheduler_->arrival(request, now) != sched::Error::kNone) return grant_ask(vgpu, slot, engine, {}, now);
  waiting_[request.id] = {&vgpu, slot, engine};
}

// Time slices are taken to end in the order in which they began. First come those that were given up; then those begun
// at a gate that has been closed since; then those that were granted; last, under a lease that still counts, those
// begun at the open gate.
void ArbiterCore::on_ended(Vgpu& vgpu, uint32_t slot, unsigned engine, uint32_t count, uint64_t busy_ns, Time now) {
  EngineState& state = vgpu.slots[slot][engine];
  Lease& lease = vgpu.leases[engine_queue_of(engine)];
  const bool metered = vgpu.meters[engine_queue_of(engine)].runs;
  const Part part = metered ? take_part(vgpu, engine_queue_of(engine), now) : Part{};
  const Time own = metered ? part.own / count : 0;
  const uint64_t each = part.of(std::min<uint64_t>(busy_ns, sched::kLongest / 2) / count);
  for (uint32_t i = 0; i < count; ++i) {
    if (state.overdue > 0) {
      if (--state.overdue == 0 && others_want(vgpu, engine_queue_of(engine))) {
        vgpu.debt[engine_queue_of(engine)] += metered ? part.own - own * i : now - state.overdue_since;
      }
    } else if (state.leased > 0) {
      --state.leased;
      lease.own += own;
      lease.busy_ns += each;
      vgpu.use[engine].busy_ns += each;
    } else if (!state.flying.empty()) {
      // A time slice of short work that was given back unused (GateView::take_back) ends before planned ones that
      // began earlier.
      auto ended = state.flying.begin();
      if (busy_ns == 0) {
        ended = std::find_if(ended, state.flying.end(), [](const Granted& one) { return one.planned == 0; });
        if (ended == state.flying.end()) ended = state.flying.begin();
      }
      const Granted slice = *ended;
      if (ended == state.flying.begin()) state.head_since = now;
      state.flying.erase(ended);
      if (engine == 0) tell_plan(vgpu, slot, slice, busy_ns / count, now);
      complete(vgpu, slot, engine, slice, each,
               metered ? own : now - held_since(vgpu, engine_queue_of(engine), state, slice), now);
    } else if (lease.takes()) {
      lease.own += own;
      lease.busy_ns += each;
      vgpu.use[engine].busy_ns += each;
      ++vgpu.use[engine].grants;
    } else {
      vgpu.debt[engine_queue_of(engine)] += static_cast<Time>(each);  // let in just before the gate was closed
    }
  }
  state.last_end = now;
}

// What is charged for a time slice: its measured time `busy_ns`, at most the time `held` for which it had the engine.
// Where others waited for `kept`, a runner that reports too little is charged the difference after a while (see
// kUnderreportedMost).
ArbiterCore::Time ArbiterCore::charge(Vgpu& vgpu, EngineQueue queue, uint64_t busy_ns, Time held, Time kept) {
  held = std::clamp<Time>(held, 0, sched::kLongest / 2);
  Time charged = std::min<Time>(static_cast<Time>(std::min<uint64_t>(busy_ns, sched::kLongest / 2)), held);
  Time& underreported = vgpu.underreported[queue];
  if (kept > 0 && others_want(vgpu, queue)) {
    underreported = std::max<Time>(0, underreported + kept - std::min(charged, kept) - kUsualDelay - kept / kUsualPart);
    if (underreported > kUnderreportedMost) {
      charged += underreported - kUnderreportedMost;
      underreported = kUnderreportedMost;
    }
  }
  return charged + take_debt(vgpu, queue);
}

// Takes the time that is still to be charged, together with the next time slice.
ArbiterCore::Time ArbiterCore::take_debt(Vgpu& vgpu, EngineQueue queue) {
  return std::min(std::exchange(vgpu.debt[queue], 0), sched::kLongest / 2);
}

void ArbiterCore::complete(Vgpu& vgpu, uint32_t slot, unsigned engine, const Granted& slice, uint64_t busy_ns,
                           Time held, Time now) {
  const EngineQueue queue = engine_queue_of(engine);
  const Time charged = charge(vgpu, queue, busy_ns, held, held);
  (void)scheduler_->completion(vgpu.id, static_cast<Engine>(engine), slice.id, charged, now);
  vgpu.use[engine].busy_ns += static_cast<uint64_t>(charged);
  free_since_[queue] = now;
  record(vgpu, slot, engine, slice, now, charged);
}

// The slot's runner has gone: its time slices are over, and each is charged the time for which it had the engine.
void ArbiterCore::forget_engine(Vgpu& vgpu, uint32_t slot, unsigned engine, Time now) {
  EngineState& state = vgpu.slots[slot][engine];
  if (state.waiting) withdraw(vgpu, slot, engine, now);
  if (engine == 0) leave_plan(vgpu, slot, now);
  const EngineQueue queue = engine_queue_of(engine);
  const bool metered = vgpu.meters[queue].runs;
  for (const Granted& slice : std::exchange(state.flying, {})) {
    const Time held = metered ? take_part(vgpu, queue, now).own : now - held_since(vgpu, queue, state, slice);
    complete(vgpu, slot, engine, slice, static_cast<uint64_t>(now - slice.granted), held, now);
  }
  state = {};
}

void ArbiterCore::record(const Vgpu& vgpu, uint32_t slot, unsigned engine, const Granted& slice, Time ended,
                         Time charged) {
  if (!tracing_) return;
  if (trace_.size() >= kTraceMax) {
    ++trace_lost_;
    return;
  }
  trace_.push_back({vgpu.name, slot, static_cast<Engine>(engine), slice.asked, slice.granted, ended, charged});
}

void ArbiterCore::start_trace() {
  tracing_ = true;
  trace_.clear();
  trace_lost_ = 0;
}

std::vector<TimeSliceRecord> ArbiterCore::take_trace(uint64_t* lost) {
  tracing_ = false;
  *lost = std::exchange(trace_lost_, 0);
  return std::exchange(trace_, {});
}

std::vector<VgpuUse> ArbiterCore::use() const {
  std::vector<VgpuUse> all;
  for (const auto& [name, vgpu] : vgpus_) {
    VgpuUse& use = all.emplace_back(VgpuUse{name, vgpu.shares, vgpu.use, latency_means(vgpu), 0});
    for (const auto& [slot, count] : vgpu.channel_groups) use.channel_groups += count;
    for (const auto& [slot, states] : vgpu.slots) {
      for (unsigned engine = 0; engine < kEngines; ++engine) {
        use.engines[engine].waiting += states[engine].waiting;
        use.engines[engine].in_flight += std::max<uint32_t>(static_cast<uint32_t>(states[engine].flying.size()),
                                                            vgpu.grant_page ? running_at(vgpu, slot, engine) : 0);
      }
    }
  }
  return all;
}

}  // namespace bandsaw
