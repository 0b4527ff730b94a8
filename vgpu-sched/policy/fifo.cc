#include "vgpu-sched/policy/fifo.h"

namespace bandsaw::sched {

Decision Fifo::decide(const State& state, Time now) {
  Decision decision;
  std::uint64_t first = 0;
  for (Slot slot = 0; slot < state.tenants.size(); ++slot) {
    const Tenant& tenant = state.tenants[slot];
    if (!tenant.runnable()) continue;
    const std::uint64_t sequence = tenant.waiting.front().sequence;
    if (decision.slot != kNoSlot && sequence > first) continue;
    first = sequence;
    decision = {.kind = Answer::Kind::kDispatch, .slot = slot, .until = 0};
  }
  return decision;
}

}  // namespace bandsaw::sched
