// Where the hardware's own time slices hold the shares of the compute engine. Its gates then stand wide open, work of
// several virtual GPUs is on the engine at once, and the hardware switches between their processes. The gates still
// show who has work; from that, vgpu-sched/policy/time_slice_weights.h tells how long the time slices are to be.
//
// It takes a runner whose channel groups are known for every program, no MPS programs, a queue for each engine, and
// band+: the other policies are those of papers, which grant the engine to one at a time. Where that does not hold, the
// gates of the compute engine are as those of all engines.

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/futex.h"

namespace bandsaw {
namespace {

using sched::kMicrosecond;
using sched::kMillisecond;

// Who has work is read so often, while several virtual GPUs have some.
constexpr ArbiterCore::Time kSample = kMillisecond;

}  // namespace

void ArbiterCore::set_channel_groups(const std::string& name, uint32_t slot, uint32_t count, Time) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  vgpu->channel_groups[slot] = count;
  vgpu->failed_time_slices.erase(slot);
  vgpu->ended_runners.erase(slot);
}

void ArbiterCore::forget_channel_groups(const std::string& name, uint32_t slot, Time) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  vgpu->channel_groups.erase(slot);
  vgpu->failed_time_slices.erase(slot);
  vgpu->ended_runners.insert(slot);
}

// The gates hold the shares until this runner is gone.
void ArbiterCore::time_slice_failed(const std::string& name, uint32_t slot, const Status& error, Time) {
  if (Vgpu* vgpu = find(name)) vgpu->failed_time_slices[slot] = error.code();
}

std::vector<TimeSliceOrder> ArbiterCore::take_time_slices() { return std::exchange(time_slice_orders_, {}); }

// Of a program that has used the compute engine.
std::string ArbiterCore::find_why_gates(const Vgpu& vgpu, uint32_t slot) {
  const auto groups = vgpu.channel_groups.find(slot);
  if (groups == vgpu.channel_groups.end() || groups->second == 0) {
    return "a program of " + vgpu.name + (vgpu.mps ? " is a client of MPS" : " has no known channel groups");
  }
  const auto failed = vgpu.failed_time_slices.find(slot);
  if (failed == vgpu.failed_time_slices.end()) return "";
  return "the time slices of a program of " + vgpu.name + " cannot be set: " + std::strerror(failed->second);
}

std::string ArbiterCore::find_why_gates() const {
  if (!options_.scheduled) return "policy none holds no shares";
  if (options_.policy != "band+") return "policy " + options_.policy + " grants the engine to one at a time";
  if (options_.model == sched::QueueModel::kSdq) return "all engines have one queue";
  bool any = false;
  for (const auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    for (const auto& [slot, states] : vgpu.slots) {
      const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
      if (gate.begun == 0 && gate.asked == 0) continue;
      if (vgpu.ended_runners.contains(slot)) continue;  // its session will clear its gates
      if (std::string why = find_why_gates(vgpu, slot); !why.empty()) return why;
      any = true;
    }
  }
  // Who comes first decides: until then nothing is changed.
  return any || hardware_slices_ ? "" : "no program has used the compute engine yet";
}

ArbiterCore::Time ArbiterCore::review_time_slices(Time now) {
  why_gates_ = find_why_gates();
  if (const bool on = why_gates_.empty(); on != hardware_slices_) on ? enter_time_slices(now) : leave_time_slices(now);
  return hardware_slices_ ? sample_time_slices(now) : kNever;
}

// What was in flight is charged as far as it has run. What waits is let in.
void ArbiterCore::enter_time_slices(Time now) {
  const EngineQueue queue = engine_queue_of(kCompute);
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    close(vgpu, queue, now);
    for (auto& [slot, states] : vgpu.slots) {
      forget_engine(vgpu, slot, kCompute, now);
      const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
      states[kCompute].ended = gate.ended;
      states[kCompute].busy_ns = gate.busy_ns;
      states[kCompute].asked = gate.granted;  // what was asked since is answered when the gate is read
    }
    settle_closing(vgpu, queue, now);
    end_lease(vgpu, queue, now);
  }
  hardware_slices_ = true;
  sampled_at_ = now;
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    post_mode(vgpu);
    for (auto& [slot, states] : vgpu.slots) {
      states[kCompute].ordered_us = 0;
      read_sliced_gate(vgpu, slot, now);
    }
  }
}

// What still runs is overdue from now on: it belongs to no time slice of the scheduler.
void ArbiterCore::leave_time_slices(Time now) {
  (void)sample_time_slices(now);
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    open_sliced_gates(vgpu, false);
    for (auto& [slot, states] : vgpu.slots) {
      EngineState& state = states[kCompute];
      state.overdue = running_at(vgpu, slot, kCompute);
      state.overdue_since = now;
      if (state.waiting) state.asked = vgpu.grant_page->gates[slot][kCompute].granted;  // it is read again
      state.waiting = false;
    }
  }
  hardware_slices_ = false;
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    post_mode(vgpu);
    for (auto& [slot, states] : vgpu.slots) read_gate(vgpu, slot, kCompute, now);
  }
}

// One that has a cap is let in by its tokens, and must not run far ahead of them.
void ArbiterCore::open_sliced_gates(Vgpu& vgpu, bool open) {
  vgpu.compute_open = open;
  const uint32_t word = !open ? 0 : vgpu.shares[kCompute].cap < 100 ? 1 : kOpenWide;
  for (auto& [slot, states] : vgpu.slots) {
    Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    gate.open = word;
    if (!open) gate.no_waiters = 0;
    if (!open || !std::exchange(states[kCompute].waiting, false)) continue;
    gate.granted = states[kCompute].asked;
    futex_wake(&gate.granted);
  }
}

void ArbiterCore::read_sliced_gate(Vgpu& vgpu, uint32_t slot, Time now) {
  const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  EngineState& state = vgpu.slots[slot][kCompute];
  const uint32_t asked = gate.asked, ended = gate.ended;
  vgpu.use[kCompute].grants += std::min(ended - std::exchange(state.ended, ended), kGateSlots);
  // At most the time that passed, whatever the runner says.
  if (state.measured_since == 0) state.measured_since = now;
  const uint64_t busy_ns = gate.busy_ns, more = busy_ns - std::exchange(state.busy_ns, busy_ns);
  const Time most = now - state.measured_since - state.measured;
  state.measured += static_cast<Time>(std::min(more, static_cast<uint64_t>(std::max<Time>(most, 0))));
  if (std::exchange(state.asked, asked) == asked) return;
  state.waiting = true;
  state.busy_at = vgpu.last_wanted[kCompute] = now;
  if (!weights_.may_run(vgpu.id)) return;
  if (!vgpu.compute_open) sampled_at_ = std::min(sampled_at_, now - kSample);  // the time before is the others'
  open_sliced_gates(vgpu, true);
}

// Somebody is to be held to a share or a cap.
bool ArbiterCore::is_steered(Time now) const {
  return weights_.active() > 1 || std::any_of(vgpus_.begin(), vgpus_.end(), [&](const auto& entry) {
           const Vgpu& vgpu = entry.second;
           return vgpu.shares[kCompute].cap < 100 && now - vgpu.last_wanted[kCompute] <= options_.period_ns;
         });
}

// Reads who has work, divides the time since the last time among them, and orders time slices. Returns when to be
// called again.
ArbiterCore::Time ArbiterCore::sample_time_slices(Time now) {
  const Time interval = is_steered(now) ? kSample : options_.period_ns;
  if (now - sampled_at_ < interval) return sampled_at_ + interval;
  sampled_at_ = now;
  std::vector<sched::TimeSliceWeights::Load> loads;
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    for (auto& [slot, states] : vgpu.slots) {
      EngineState& state = states[kCompute];
      read_sliced_gate(vgpu, slot, now);
      const bool busy = running_at(vgpu, slot, kCompute) > 0;
      if (busy) state.busy_at = now;
      if (busy || state.waiting) vgpu.last_wanted[kCompute] = now;
      loads.push_back({vgpu.id, slot, busy, state.measured, vgpu.grant_page->gates[slot][kCompute].rests});
    }
  }
  weights_.advance(now, loads);
  bool any = false;
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    const Time used_now = weights_.used(vgpu.id);
    vgpu.use[kCompute].busy_ns += static_cast<uint64_t>(used_now - std::exchange(vgpu.slices_used, used_now));
    const bool used = now - vgpu.last_wanted[kCompute] <= options_.period_ns;
    // Runners tell nothing while their gates are open: who is idle has to ask again, and need not be read meanwhile.
    if (const bool open = used && weights_.may_run(vgpu.id); open != vgpu.compute_open) open_sliced_gates(vgpu, open);
    for (const auto& [slot, states] : vgpu.slots)
      vgpu.grant_page->gates[slot][kCompute].no_waiters = weights_.active() > 1 ? 0 : 1;
    any = any || used;
    if (used && weights_.active() > 1) order_time_slices(vgpu, now);
  }
  return any ? now + (is_steered(now) ? kSample : options_.period_ns) : kNever;
}

void ArbiterCore::order_time_slices(Vgpu& vgpu, Time now) {
  for (auto& [slot, states] : vgpu.slots) {
    EngineState& state = states[kCompute];
    const auto groups = vgpu.channel_groups.find(slot);
    if (now - state.busy_at > options_.period_ns || groups == vgpu.channel_groups.end() || groups->second == 0)
      continue;
    const auto wanted = static_cast<uint32_t>(weights_.slice(vgpu.id) / groups->second / kMicrosecond);
    if (std::exchange(state.ordered_us, wanted) == wanted) continue;
    time_slice_orders_.push_back({vgpu.name, slot, wanted});
  }
}

}  // namespace bandsaw
