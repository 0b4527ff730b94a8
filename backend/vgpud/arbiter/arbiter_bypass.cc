// MPS virtual GPUs whose compute gates stand open beside the scheduler: those with SMs of their own, and those with a
// latency bound, whose kernels go first on the device (backend/control/mps_priority.h).
//
// One with a bound has no time to ask: a round trip to the arbiter takes as long as its kernels. It is let through as
// long as it uses no more than its share, or a tenth of the time if that is more. Beyond, it asks like everybody, and
// what it had too much is charged with its next time slice.

#include <algorithm>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/futex.h"

namespace bandsaw {
namespace {

constexpr double kAllowanceLeast = 0.1;
// The gates of one with a bound stay open for so long after its last work: the first work after they are closed waits
// for the arbiter.
constexpr sched::Time kOpenAfterUse = sched::kSecond;

}  // namespace

void ArbiterCore::set_latency(const std::string& name, Time latency) {
  Vgpu* vgpu = find(name);
  if (!vgpu || std::exchange(vgpu->latency, latency) == latency) return;
  vgpu->allowance = {.spent = true};  // full when it is looked at first
  weights_.set(vgpu->id, vgpu->shares[kCompute], latency);
}

// Runners of an MPS one have their priority from their sessions. The driver switches between MPS and time-sliced ones,
// whatever their priorities.
LatencyMeans ArbiterCore::latency_means(const Vgpu& vgpu) const {
  if (vgpu.latency == 0) return LatencyMeans::kNothing;
  if (vgpu.mps) return only_mps_ ? LatencyMeans::kPriorities : LatencyMeans::kNothing;
  return hardware_slices_ ? LatencyMeans::kTimeSlices : LatencyMeans::kNothing;
}

// Counts up its allowance. True: it may go on without asking.
bool ArbiterCore::goes_first(Vgpu& vgpu, Time now) const {
  if (vgpu.latency == 0 || vgpu.shares[0].cap < 100) return false;
  Allowance& allowance = vgpu.allowance;
  const Time most = options_.period_ns;
  const double rate = std::max(kAllowanceLeast, vgpu.shares[0].percent / 100.0);
  const Time passed = std::min(now - allowance.at, 100 * sched::kSecond);
  const auto used = static_cast<Time>(std::min<uint64_t>(
      vgpu.use[0].busy_ns - std::exchange(allowance.busy_ns, vgpu.use[0].busy_ns), sched::kLongest / 2));
  allowance.left += static_cast<Time>(static_cast<double>(passed) * rate) - used;
  allowance.left = std::clamp<Time>(allowance.left, -sched::kSecond, most);
  allowance.at = now;
  if (allowance.left < 0 && !allowance.spent) {
    allowance.spent = true;
    vgpu.debt[engine_queue_of(0)] -= allowance.left;
  }
  if (allowance.left >= most) allowance.spent = false;
  return !allowance.spent;
}

// Kernels with short blocks need not be cut where all others go first: these wait for the end of a block only.
void ArbiterCore::post_uncut() {
  int asking = 0;  // virtual GPUs with programs that do not go first
  Time least = 0;  // bound of those that do
  for (const auto& [name, vgpu] : vgpus_) {
    if (!has_programs(vgpu)) continue;
    if (latency_means(vgpu) == LatencyMeans::kNothing) {
      ++asking;
    } else {
      least = least == 0 ? vgpu.latency : std::min(least, vgpu.latency);
    }
  }
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.grant_page) continue;
    const bool alone = asking == 1 && vgpu.mps && vgpu.latency == 0 && has_programs(vgpu);
    vgpu.grant_page->uncut_block_ns = alone ? static_cast<uint64_t>(least) : 0;
  }
}

void ArbiterCore::set_sm_part(const std::string& name, double part) {
  Vgpu* vgpu = find(name);
  if (!vgpu) return;
  if (vgpu->bypass.part == 0) vgpu->bypass.fresh = false;
  vgpu->bypass.part = part;
}

// A time-sliced context never runs beside others, not even on other SMs: the driver switches between it and all others.
// Returns when to be called again.
ArbiterCore::Time ArbiterCore::review_bypasses(Time now) {
  only_mps_ = std::none_of(vgpus_.begin(), vgpus_.end(),
                           [](const auto& entry) { return !entry.second.mps && has_programs(entry.second); });
  post_uncut();
  Time next = kNever;
  for (auto& [name, vgpu] : vgpus_) {
    Bypass& bypass = vgpu.bypass;
    if (bypass.part == 0 && vgpu.latency == 0 && !bypass.on) continue;
    if (bypass.on && bypass.open) (void)probe_bypass(vgpu, now);
    bypass.fresh = bypass.part > 0 && (bypass.fresh || !has_programs(vgpu));
    const bool first = goes_first(vgpu, now);
    const bool on = only_mps_ && vgpu.mps && (has_own_sms(vgpu) || first);
    if (on != bypass.on) on ? enter_bypass(vgpu, now) : leave_bypass(vgpu, now);
    if (bypass.on && bypass.open) next = std::min(next, probe_bypass(vgpu, now));
  }
  return next;
}

// What it has in flight is charged as far as it has run.
void ArbiterCore::enter_bypass(Vgpu& vgpu, Time now) {
  close(vgpu, engine_queue_of(0), now);
  for (auto& [slot, states] : vgpu.slots) {
    forget_engine(vgpu, slot, 0, now);
    const Gate& gate = vgpu.grant_page->gates[slot][0];
    states[0].ended = gate.ended;
    states[0].busy_ns = gate.busy_ns;
    states[0].asked = gate.asked - 1;  // it is answered when it is read
  }
  settle_closing(vgpu, engine_queue_of(0), now);
  vgpu.bypass = {.part = vgpu.bypass.part, .fresh = vgpu.bypass.fresh, .on = true, .since = now};
  for (auto& [slot, states] : vgpu.slots) read_bypass_gate(vgpu, slot, now);
  post_mode(vgpu);
}

// What still runs there is overdue from now on: it belongs to no time slice.
void ArbiterCore::leave_bypass(Vgpu& vgpu, Time now) {
  for (auto& [slot, states] : vgpu.slots) {
    vgpu.grant_page->gates[slot][0].open = 0;
    read_bypass_gate(vgpu, slot, now);
    vgpu.grant_page->gates[slot][0].open = 0;
    states[0].overdue = running_at(vgpu, slot, 0);
    states[0].overdue_since = now;
  }
  vgpu.bypass.on = false;
  post_mode(vgpu);
}

// It is charged the time that its runners measured, at most the time that passed; on SMs of its own, their part of it.
void ArbiterCore::read_bypass_gate(Vgpu& vgpu, uint32_t slot, Time now) {
  Gate& gate = vgpu.grant_page->gates[slot][0];
  EngineState& state = vgpu.slots[slot][0];
  Bypass& bypass = vgpu.bypass;
  const uint32_t asked = gate.asked, ended = gate.ended;
  const uint64_t busy_ns = gate.busy_ns;
  const uint32_t count = ended - std::exchange(state.ended, ended);
  const uint64_t busy = busy_ns - std::exchange(state.busy_ns, busy_ns);
  if (count > 0) {
    const auto took = static_cast<Time>(std::min<uint64_t>(busy, static_cast<uint64_t>(now - bypass.since)));
    const auto charged = has_own_sms(vgpu) ? static_cast<Time>(static_cast<double>(took) * bypass.part) : took;
    bypass.since += took;
    vgpu.use[0].busy_ns += static_cast<uint64_t>(charged);
    vgpu.use[0].grants += count;
    record(vgpu, slot, 0, {.asked = now - took, .granted = now - took}, now, charged);
  }
  if (std::exchange(state.asked, asked) == asked) return;
  if (!std::exchange(bypass.open, true)) bypass.since = bypass.probed_at = now;
  bypass.used_at = now;
  gate.blocks = 0;
  gate.open = 1;
  gate.granted = asked;
  futex_wake(&gate.granted);
}

// Runners tell nothing while their gate is open. The gates of one that was idle for a while are closed, so that it asks
// again and need not be checked meanwhile.
ArbiterCore::Time ArbiterCore::probe_bypass(Vgpu& vgpu, Time now) {
  Bypass& bypass = vgpu.bypass;
  if (now - bypass.probed_at < options_.period_ns) return bypass.probed_at + options_.period_ns;
  bypass.probed_at = now;
  bool used = false;
  for (auto& [slot, states] : vgpu.slots) {
    const uint32_t ended = states[0].ended;
    read_bypass_gate(vgpu, slot, now);
    used = used || states[0].ended != ended || running_at(vgpu, slot, 0) > 0;
  }
  if (used) bypass.used_at = now;
  if (now - bypass.used_at < (vgpu.latency > 0 ? kOpenAfterUse : 1)) return now + options_.period_ns;
  for (auto& [slot, states] : vgpu.slots) vgpu.grant_page->gates[slot][0].open = 0;
  bypass.open = false;
  return kNever;
}

}  // namespace bandsaw
