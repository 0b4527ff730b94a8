#include "backend/vgpud/arbiter/bypass.h"

#include <algorithm>
#include <utility>

#include "backend/vgpud/arbiter/charging.h"
#include "backend/vgpud/arbiter/planning.h"
#include "backend/vgpud/arbiter/unqueued_gates.h"

namespace bandsaw {
namespace {

// The gates of one with a bound stay open for so long after its last work: the first work after they are closed waits
// for the arbiter.
constexpr sched::Time kOpenAfterUse = sched::kSecond;

bool is_in(const VgpuState& vgpu) { return vgpu.compute_gates == ComputeGates::kBypass; }

}  // namespace

void Bypasses::set_latency(VgpuState& vgpu, sched::Time latency) {
  if (std::exchange(vgpu.latency, latency) != latency) vgpu.allowance = {};
}

// Runners of an MPS one have their priority from their sessions. The driver switches between MPS and time-sliced ones,
// whatever their priorities.
LatencyMeans Bypasses::latency_means(const VgpuState& vgpu) const {
  if (vgpu.latency == 0) return LatencyMeans::kNothing;
  if (vgpu.mps) return table_->only_mps() ? LatencyMeans::kPriorities : LatencyMeans::kNothing;
  return vgpu.compute_gates == ComputeGates::kTimeSliced ? LatencyMeans::kTimeSlices : LatencyMeans::kNothing;
}

// It need not ask as long as its allowance lasts.
bool Bypasses::is_let_through(VgpuState& vgpu, sched::Time now) const {
  const sched::Share& share = vgpu.shares[kCompute];
  if (!vgpu.goes_first() || share.cap < 100 || planning_->shares_by_progress()) return false;
  Account& account = vgpu.account;
  account.debt[table_->queue_of(kCompute)] +=
      vgpu.allowance.count(share, account.use[kCompute].busy_ns, options_->period_ns, now);
  return !vgpu.allowance.spent();
}

// Kernels with short blocks need not be cut where all others go first: these wait for the end of a block only.
void Bypasses::post_uncut() {
  int asking = 0;         // virtual GPUs with programs that do not go first
  sched::Time least = 0;  // bound of those that do
  for (const VgpuState& vgpu : table_->all()) {
    if (!GrantTable::has_programs(vgpu)) continue;
    if (latency_means(vgpu) == LatencyMeans::kNothing) {
      ++asking;
    } else {
      least = least == 0 ? vgpu.latency : std::min(least, vgpu.latency);
    }
  }
  for (VgpuState& vgpu : table_->all()) {
    if (!vgpu.grant_page) continue;
    const bool alone = asking == 1 && vgpu.mps && vgpu.latency == 0 && GrantTable::has_programs(vgpu);
    vgpu.grant_page->uncut_block_ns = alone ? static_cast<uint64_t>(least) : 0;
  }
}

// A time-sliced context never runs beside others, not even on other SMs: the driver switches between it and all others.
sched::Time Bypasses::review(sched::Time now) {
  const bool only_mps = table_->only_mps();
  post_uncut();
  sched::Time next = kNever;
  for (VgpuState& vgpu : table_->all()) {
    if (vgpu.partition.part() == 0 && !vgpu.goes_first() && !is_in(vgpu)) continue;
    if (is_in(vgpu) && vgpu.bypass.open) (void)probe(vgpu, now);
    vgpu.partition.review(GrantTable::has_programs(vgpu));
    const bool through = is_let_through(vgpu, now);
    const bool in = only_mps && vgpu.mps && (vgpu.partition.holds() || through);
    if (in && vgpu.compute_gates == ComputeGates::kMpsShared) continue;  // it comes here from its queue
    if (in && vgpu.compute_gates == ComputeGates::kQueued) enter(vgpu, now);
    if (!in && is_in(vgpu)) leave(vgpu, now);
    if (is_in(vgpu) && vgpu.bypass.open) next = std::min(next, probe(vgpu, now));
  }
  return next;
}

void Bypasses::enter(VgpuState& vgpu, sched::Time now) {
  unqueued_->take_out(vgpu, ComputeGates::kBypass, now);
  vgpu.bypass = {.since = now};
  for (auto& [slot, gates] : vgpu.slots) read(vgpu, slot, now);
}

void Bypasses::leave(VgpuState& vgpu, sched::Time now) {
  for (auto& [slot, gates] : vgpu.slots) charge_ended(vgpu, slot, now);
  unqueued_->put_back(vgpu, now);
}

// It is charged the time that its runners measured, at most the time that passed; on SMs of its own, their part of it.
void Bypasses::charge_ended(VgpuState& vgpu, uint32_t slot, sched::Time now) {
  const auto [count, busy] = UnqueuedGates::take_ended(vgpu, slot);
  if (count == 0) return;
  Bypass& bypass = vgpu.bypass;
  const auto took = static_cast<sched::Time>(std::min<uint64_t>(busy, static_cast<uint64_t>(now - bypass.since)));
  const double part = vgpu.partition.holds() ? vgpu.partition.part() : 1;
  const auto charged = static_cast<sched::Time>(static_cast<double>(took) * part);
  bypass.since += took;
  vgpu.account.use[kCompute].busy_ns += static_cast<uint64_t>(charged);
  vgpu.account.use[kCompute].grants += count;
  charging_->record(vgpu, slot, kCompute, {.asked = now - took, .granted = now - took}, now, charged);
}

void Bypasses::read(VgpuState& vgpu, uint32_t slot, sched::Time now) {
  charge_ended(vgpu, slot, now);
  if (!UnqueuedGates::take_ask(vgpu, slot)) return;
  Bypass& bypass = vgpu.bypass;
  if (!std::exchange(bypass.open, true)) bypass.since = bypass.probed_at = now;
  bypass.used_at = now;
  Gate& gate = vgpu.grant_page->gates[slot][kCompute];
  gate.blocks = 0;
  // Wide: then its runner measures what launches take by themselves, not what they take beside the others'.
  gate.open = vgpu.partition.holds() ? 1 : kOpenWide;
  GrantTable::answer(vgpu, slot, kCompute);
}

// Runners tell nothing while their gate is open. The gates of one that was idle for a while are closed, so that it asks
// again and need not be checked meanwhile.
sched::Time Bypasses::probe(VgpuState& vgpu, sched::Time now) {
  Bypass& bypass = vgpu.bypass;
  if (now - bypass.probed_at < options_->period_ns) return bypass.probed_at + options_->period_ns;
  bypass.probed_at = now;
  bool used = false;
  for (auto& [slot, gates] : vgpu.slots) {
    const uint32_t ended = gates[kCompute].ended;
    read(vgpu, slot, now);
    used = used || gates[kCompute].ended != ended || GrantTable::running_at(vgpu, slot, kCompute) > 0;
  }
  if (used) bypass.used_at = now;
  if (now - bypass.used_at < (vgpu.goes_first() ? kOpenAfterUse : 1)) return now + options_->period_ns;
  for (auto& [slot, gates] : vgpu.slots) vgpu.grant_page->gates[slot][kCompute].open = 0;
  bypass.open = false;
  return kNever;
}

}  // namespace bandsaw
