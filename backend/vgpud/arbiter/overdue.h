// Time slices that have an engine for longer than the time slice timeout while others wait: other virtual GPUs, or
// other programs of the same one. The scheduler goes on without them; they are charged on until they end.
#pragma once

#include "backend/vgpud/arbiter/charging.h"
#include "backend/vgpud/arbiter/leases.h"
#include "backend/vgpud/arbiter/planning.h"

namespace bandsaw {

class Overdue {
 public:
  using Queue = GrantTable::Queue;

  // All outlive this.
  Overdue(const ArbiterOptions* options, GrantTable* table, EngineQueues* queues, Charging* charging,
          Planning* planning, Leases* leases)
      : options_(options), table_(table), queues_(queues), charging_(charging), planning_(planning), leases_(leases) {}

  // Returns when to be called again: now, if somebody else may have the engine.
  sched::Time give_up(Queue queue, sched::Time now);

 private:
  sched::Time give_up_lease(VgpuState& vgpu, Queue queue, sched::Time now);
  sched::Time give_up_slices(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  EngineQueues* const queues_;
  Charging* const charging_;
  Planning* const planning_;
  Leases* const leases_;
};

}  // namespace bandsaw
