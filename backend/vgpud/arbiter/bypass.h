// MPS virtual GPUs whose compute gates stand open beside the scheduler: those with SMs of their own (sm_partition.h),
// and, where shares do not hold by progress (mps_shares.h), those whose kernels go first on the device because they
// have a latency bound or a priority above 0 (backend/control/mps_priority.h), as long as their allowance lasts.
#pragma once

#include <cstdint>

#include "backend/vgpud/arbiter/arbiter.h"

namespace bandsaw {

class Charging;
class GrantTable;
class Planning;
class UnqueuedGates;
struct VgpuState;

// Of one virtual GPU in ComputeGates::kBypass.
struct Bypass {
  bool open = false;  // some gate is, and has been used a moment ago
  // `since`: all time before it is charged, or was idle. `probed_at`: when its gates were read last. `used_at`: when
  // they were last seen in use.
  sched::Time since = 0, probed_at = 0, used_at = 0;
};

class Bypasses {
 public:
  // All outlive this.
  Bypasses(const ArbiterOptions* options, GrantTable* table, Charging* charging, const Planning* planning,
           UnqueuedGates* unqueued)
      : options_(options), table_(table), charging_(charging), planning_(planning), unqueued_(unqueued) {}

  void set_latency(VgpuState& vgpu, sched::Time latency);
  LatencyMeans latency_means(const VgpuState& vgpu) const;
  // Lets virtual GPUs into the bypass and out of it. Returns when to be called again.
  sched::Time review(sched::Time now);
  // A gate of one that is in it.
  void read(VgpuState& vgpu, uint32_t slot, sched::Time now);

 private:
  void post_uncut();
  bool is_let_through(VgpuState& vgpu, sched::Time now) const;
  void enter(VgpuState& vgpu, sched::Time now);
  void leave(VgpuState& vgpu, sched::Time now);
  void charge_ended(VgpuState& vgpu, uint32_t slot, sched::Time now);
  sched::Time probe(VgpuState& vgpu, sched::Time now);

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  Charging* const charging_;
  const Planning* const planning_;
  UnqueuedGates* const unqueued_;
};

}  // namespace bandsaw
