// Compute gates that belong to no queue: the virtual GPU's work begins beside that of others, and no time slice of it
// is the scheduler's. Who takes them out (bypass.h, hardware_slices.h) opens them, reads them and charges for them.
#pragma once

#include "backend/vgpud/arbiter/gate_reader.h"
#include "backend/vgpud/arbiter/leases.h"

namespace bandsaw {

class UnqueuedGates {
 public:
  // All outlive this.
  UnqueuedGates(GrantTable* table, Planning* planning, GateReader* reader, Leases* leases)
      : table_(table), planning_(planning), reader_(reader), leases_(leases) {}

  // What is in flight is charged as far as it has run. The gates are closed then, and an ask that waits is found when
  // they are read next: GateState::asked is what was answered last.
  void take_out(VgpuState& vgpu, ComputeGates where, sched::Time now);
  // Closes the gates and gives them back to their queue. What still runs is overdue from now on: it belongs to no time
  // slice of the scheduler.
  void put_back(VgpuState& vgpu, sched::Time now);

  // What has ended at such a gate since it was read last.
  struct Ended {
    uint32_t count = 0;
    uint64_t busy_ns = 0;
  };
  static Ended take_ended(VgpuState& vgpu, uint32_t slot);
  // True: something is asked that has not been answered. It counts as seen from now on.
  static bool take_ask(VgpuState& vgpu, uint32_t slot);

 private:
  GrantTable* const table_;
  Planning* const planning_;
  GateReader* const reader_;
  Leases* const leases_;
};

}  // namespace bandsaw
