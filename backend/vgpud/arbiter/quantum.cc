#include "backend/vgpud/arbiter/quantum.h"

#include <algorithm>
#include <utility>

namespace bandsaw {
namespace {

// All who want the GPU are to have their turn in this time, so the more they are the shorter is a time slice of short
// work; but not shorter than this part of the quantum, or switching would cost too much.
constexpr sched::Time kRound = 16 * sched::kMillisecond;
constexpr sched::Time kQuantumParts = 4;

}  // namespace

// A virtual GPU counts as active for a period after its last work, so that short pauses do not change the quantum.
bool Quantum::is_active(const VgpuState& vgpu, sched::Time now) const {
  const sched::Time last = std::ranges::max(vgpu.last_wanted);
  if (last != 0 && now - last < options_->period_ns) return true;
  for (unsigned queue = 0; queue < table_->queues(); ++queue) {
    if (table_->wants(vgpu, queue, true)) return true;
  }
  return false;
}

void Quantum::fit(sched::Time now) {
  const auto active = std::ranges::count_if(table_->all(), [&](const VgpuState& vgpu) { return is_active(vgpu, now); });
  const sched::Time most = options_->quantum_ns;
  const sched::Time fitting = std::clamp(kRound / std::max<sched::Time>(active, 1), most / kQuantumParts, most);
  if (std::exchange(now_, fitting) == fitting) return;
  for (VgpuState& vgpu : table_->all()) {
    if (vgpu.grant_page) post(*vgpu.grant_page);
  }
}

}  // namespace bandsaw
