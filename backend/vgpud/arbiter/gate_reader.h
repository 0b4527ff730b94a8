// What happened at the gates that belong to a queue, since they were read last: time slices that have ended are
// completed and charged, a new ask goes to the scheduler.
#pragma once

#include "backend/vgpud/arbiter/charging.h"
#include "backend/vgpud/arbiter/engine_queues.h"
#include "backend/vgpud/arbiter/grant_table.h"
#include "backend/vgpud/arbiter/planning.h"

namespace bandsaw {

class GateReader {
 public:
  // All outlive this.
  GateReader(GrantTable* table, EngineQueues* queues, Charging* charging, Planning* planning)
      : table_(table), queues_(queues), charging_(charging), planning_(planning) {}

  // A closing lease may be over after this (Leases::settle).
  void read(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);
  // The gate leaves its queue. Its time slices are over as far as the scheduler is concerned, and each is charged the
  // time for which it had the engine.
  void forget(VgpuState& vgpu, uint32_t slot, unsigned engine, sched::Time now);

 private:
  void on_ended(VgpuState& vgpu, uint32_t slot, unsigned engine, uint32_t count, uint64_t busy_ns, sched::Time now);
  void on_granted_ended(VgpuState& vgpu, uint32_t slot, unsigned engine, uint64_t measured, uint64_t charged,
                        const Part& part, sched::Time now);

  GrantTable* const table_;
  EngineQueues* const queues_;
  Charging* const charging_;
  Planning* const planning_;
};

}  // namespace bandsaw
