#include "backend/vgpud/arbiter/mps_shares.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/vgpud/arbiter/planning.h"
#include "backend/vgpud/arbiter/unqueued_gates.h"

namespace bandsaw {
namespace {

// Progress is read so often while several virtual GPUs have work, or a cap holds.
constexpr sched::Time kSample = 3 * sched::kMillisecond;
// The gates of one that goes first stay open for so long after its last work: the first work after they are closed
// waits for the arbiter.
constexpr sched::Time kSharedOpenAfterUse = sched::kSecond;

bool goes_by_progress(const VgpuState& vgpu) { return vgpu.compute_gates == ComputeGates::kMpsShared; }

}  // namespace

void MpsShares::set(const VgpuState& vgpu) { shares_.set(vgpu.id, vgpu.shares[kCompute]); }

void MpsShares::remove(const VgpuState& vgpu) { shares_.remove(vgpu.id); }

sched::Time MpsShares::review(sched::Time now) {
  const bool possible = planning_->shares_by_progress() && table_->only_mps();
  for (VgpuState& vgpu : table_->all()) {
    const bool in = possible && vgpu.mps && vgpu.grant_page && !vgpu.partition.holds();
    if (in && vgpu.compute_gates == ComputeGates::kQueued) enter(vgpu, now);
    if (!in && goes_by_progress(vgpu)) leave(vgpu, now);
  }
  return sample(now);
}

bool MpsShares::hold() const { return std::ranges::any_of(table_->all(), goes_by_progress); }

void MpsShares::enter(VgpuState& vgpu, sched::Time now) {
  unqueued_->take_out(vgpu, ComputeGates::kMpsShared, now);
  vgpu.shared = {};
  for (auto& [slot, gates] : vgpu.slots) read(vgpu, slot, now);
}

void MpsShares::leave(VgpuState& vgpu, sched::Time now) {
  if (vgpu.grant_page) vgpu.grant_page->goes_alone = 0;
  unqueued_->put_back(vgpu, now);
}

void MpsShares::leave(sched::Time now) {
  for (VgpuState& vgpu : table_->all()) {
    if (goes_by_progress(vgpu)) leave(vgpu, now);
  }
}

// Wide for one that goes first: then its runner measures what launches take by themselves, not what they take beside
// the others'. One that has a cap must not run far ahead of it.
void MpsShares::set_open(VgpuState& vgpu, bool open) {
  vgpu.shared.open = open;
  const uint32_t word = !open ? 0 : vgpu.goes_first() && vgpu.shares[kCompute].cap == 100 ? kOpenWide : 1;
  for (auto& [slot, gates] : vgpu.slots) {
    Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    gate.blocks = 0;
    gate.open = word;
    if (open && std::exchange(gates[kCompute].waiting, false)) GrantTable::answer(vgpu, slot, kCompute);
  }
}

void MpsShares::read(VgpuState& vgpu, uint32_t slot, sched::Time now) {
  const uint32_t ended = UnqueuedGates::take_ended(vgpu, slot).count;
  vgpu.shared.ended = vgpu.shared.ended || ended > 0;
  vgpu.account.use[kCompute].grants += std::min(ended, kGateSlots);
  if (!UnqueuedGates::take_ask(vgpu, slot)) return;
  vgpu.slots[slot][kCompute].waiting = true;
  vgpu.shared.used_at = vgpu.last_wanted[kCompute] = now;
  shares_.wake(vgpu.id, now);
  if (!shares_.may_run(vgpu.id)) return;
  if (!vgpu.shared.open) sampled_at_ = -sched::kLongest;  // the time before is the others'
  set_open(vgpu, true);
}

bool MpsShares::note_running(VgpuState& vgpu) {
  const bool ran = std::exchange(vgpu.shared.runs, GrantTable::computes(vgpu)),
             ended = std::exchange(vgpu.shared.ended, false);
  return vgpu.shared.ran = ran || ended || vgpu.shared.runs;
}

sched::ProgressShares::Work MpsShares::look(VgpuState& vgpu, bool alone, int sharers, sched::Time now) {
  MpsTimes times;
  for (auto& [slot, gates] : vgpu.slots) {
    const Gate& gate = vgpu.grant_page->gates[slot][kCompute];
    times.known += gate.beside_ns;
    times.own += gate.beside_own_ns;
    times.unknown += gate.unknown_ns;
    times.paused += gate.paused_ns;
    times.ended += gate.ended;
    const uint32_t running = GrantTable::running_at(vgpu, slot, kCompute);
    times.running += running;
    times.programs += running > 0 || gates[kCompute].waiting;
    times.waiting = times.waiting || gates[kCompute].waiting;
  }
  const MpsProgress::Step step = vgpu.progress.read(times, alone, sharers, now);
  const bool wants = step.wants || vgpu.shared.ran;
  if (wants) vgpu.shared.used_at = vgpu.last_wanted[kCompute] = now;
  const sched::Time charged = std::max<sched::Time>(vgpu.shared.uncharged += step.used, 0);
  vgpu.account.use[kCompute].busy_ns += static_cast<uint64_t>(charged);
  vgpu.shared.uncharged -= charged;
  return {vgpu.id, wants, step.worked, step.used, vgpu.progress.is_familiar(), vgpu.goes_first()};
}

sched::Time MpsShares::sample(sched::Time now) {
  const auto interval = [&] { return shares_.is_steered() ? kSample : options_->period_ns; };
  const bool any = std::ranges::any_of(table_->all(), [](const VgpuState& vgpu) {
    return goes_by_progress(vgpu) && (vgpu.shared.open || GrantTable::waits_for_compute(vgpu));
  });
  if (!any) return kNever;
  if (now - sampled_at_ < interval()) return sampled_at_ + interval();
  sampled_at_ = now;
  const bool slept = now - std::exchange(looked_at_, now) > 2 * options_->period_ns;
  int sharers = 0;
  for (VgpuState& vgpu : table_->all()) {
    if (!goes_by_progress(vgpu)) continue;
    if (slept) vgpu.progress.skip_to(now);
    for (auto& [slot, gates] : vgpu.slots) read(vgpu, slot, now);
    sharers += note_running(vgpu);
  }
  std::vector<sched::ProgressShares::Work> work;
  for (VgpuState& vgpu : table_->all()) {
    if (goes_by_progress(vgpu)) work.push_back(look(vgpu, sharers - vgpu.shared.ran == 0, sharers, now));
  }
  shares_.advance(now, work);
  follow(now);
  return now + interval();
}

// Runners tell nothing while their gates are open: who is idle has to ask again, and need not be looked at meanwhile.
void MpsShares::follow(sched::Time now) {
  for (VgpuState& vgpu : table_->all()) {
    if (!goes_by_progress(vgpu)) continue;
    const bool used = now - vgpu.shared.used_at <= (vgpu.goes_first() ? kSharedOpenAfterUse : options_->period_ns);
    if (const bool open = used && shares_.may_run(vgpu.id); open != vgpu.shared.open) set_open(vgpu, open);
  }
  post_alone();
}

// Nobody else has anything on the device, nor may begin something: its runners learn what launches take by themselves.
void MpsShares::post_alone() {
  const auto in_the_way = [this](const VgpuState& vgpu) {
    return goes_by_progress(vgpu) && (vgpu.shared.open || GrantTable::computes(vgpu)) && !shares_.is_light(vgpu.id);
  };
  const auto all = std::ranges::count_if(table_->all(), in_the_way);
  for (VgpuState& vgpu : table_->all()) {
    if (!goes_by_progress(vgpu)) continue;
    const bool alone = all - in_the_way(vgpu) == 0;
    if (std::exchange(vgpu.shared.alone, alone) != alone) vgpu.grant_page->goes_alone = alone ? 1 : 0;
  }
}

}  // namespace bandsaw
