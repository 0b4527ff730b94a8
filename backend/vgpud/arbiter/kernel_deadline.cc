#include "backend/vgpud/arbiter/kernel_deadline.h"

#include <algorithm>

#include "backend/vgpud/arbiter/grant_table.h"

namespace bandsaw {
namespace {

// An order that had no effect is given again after this time.
constexpr sched::Time kAgain = sched::kSecond;

}  // namespace

sched::Time KernelDeadlines::review(sched::Time now, std::vector<RunnerEnd>* ends) const {
  if (std::ranges::none_of(table_->all(), [](const VgpuState& vgpu) { return vgpu.kernel_deadline > 0; }))
    return kNever;
  const auto running = static_cast<int>(std::ranges::count_if(table_->all(), GrantTable::computes));
  sched::Time next = kNever;
  for (VgpuState& vgpu : table_->all()) {
    if (vgpu.kernel_deadline == 0 || !vgpu.grant_page) continue;
    for (const auto& [slot, gates] : vgpu.slots) next = std::min(next, watch(vgpu, slot, running, now, ends));
  }
  return next;
}

sched::Time KernelDeadlines::watch(VgpuState& vgpu, uint32_t slot, int running, sched::Time now,
                                   std::vector<RunnerEnd>* ends) const {
  const uint32_t ended = vgpu.grant_page->gates[slot][kCompute].ended;
  const bool runs = GrantTable::running_at(vgpu, slot, kCompute) > 0;
  const uint64_t busy_ns = vgpu.account.use[kCompute].busy_ns;
  GateState& gate = vgpu.slots[slot][kCompute];
  OldestSlice& oldest = gate.oldest;
  // One that was granted begins at any time from now on, and says nothing of it.
  const sched::Time soon = now + std::min(options_->period_ns, vgpu.kernel_deadline);
  if (!runs) oldest = {};
  if (!runs) return gate.flying.empty() ? kNever : soon;
  if (!oldest.runs || oldest.ended != ended) {
    oldest = {.runs = true, .ended = ended, .since = now, .seen_at = now, .busy_ns = busy_ns};
    return soon;
  }
  const sched::Time wall = now - oldest.seen_at;
  if (vgpu.compute_gates == ComputeGates::kTimeSliced) {
    oldest.had += static_cast<sched::Time>(std::min<uint64_t>(busy_ns - oldest.busy_ns, static_cast<uint64_t>(wall)));
  } else {
    oldest.had += wall / std::max(running, 1);
  }
  oldest.seen_at = now;
  oldest.busy_ns = busy_ns;
  if (oldest.had <= vgpu.kernel_deadline) return soon;
  if (oldest.ended_at < 0 || now - oldest.ended_at >= kAgain) {
    oldest.ended_at = now;
    ends->push_back({vgpu.name, slot, RunnerEndReason::kDeadline, oldest.since});
  }
  return oldest.ended_at + kAgain;
}

}  // namespace bandsaw
