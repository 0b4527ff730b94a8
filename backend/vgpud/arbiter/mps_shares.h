// MPS virtual GPUs whose shares hold by the progress that they make (vgpu-sched/policy/progress_shares.h). Their
// compute gates stand open beside the scheduler, and work of all of them is on the engine at once, as with the driver's
// own MPS. The gates of those that are to give way are closed for a while.
//
// It takes band+, a queue for each engine, the planning mode `mps`, and no time-sliced virtual GPU with programs: the
// driver switches between these and all clients of MPS. Where that does not hold, the gates of the compute engine are
// as those of all engines.
#pragma once

#include <cstdint>

#include "backend/vgpud/arbiter/arbiter.h"
#include "vgpu-sched/policy/progress_shares.h"

namespace bandsaw {

class GrantTable;
class Planning;
class UnqueuedGates;
struct VgpuState;

// Of one virtual GPU in ComputeGates::kMpsShared.
struct MpsShared {
  bool open = false;  // its gates
  sched::Time used_at = 0;
  // Of its work on the device: there is some; some has ended since it was looked at last.
  bool runs = false, ended = false;
  bool ran = false;  // there was some since then
  sched::Time uncharged = 0;
  bool alone = false;  // its runners have been told that nobody else has work
};

class MpsShares {
 public:
  // All outlive this.
  MpsShares(const ArbiterOptions* options, GrantTable* table, Planning* planning, UnqueuedGates* unqueued)
      : options_(options), table_(table), planning_(planning), unqueued_(unqueued) {}

  void set(const VgpuState& vgpu);
  void remove(const VgpuState& vgpu);
  // Lets virtual GPUs in and out. Returns when to be called again.
  sched::Time review(sched::Time now);
  // Whether they hold by progress now.
  bool hold() const;
  // Gives all gates back, as before a change of the policy.
  void leave(sched::Time now);
  // A gate of one that is in it.
  void read(VgpuState& vgpu, uint32_t slot, sched::Time now);

 private:
  void enter(VgpuState& vgpu, sched::Time now);
  void leave(VgpuState& vgpu, sched::Time now);
  void set_open(VgpuState& vgpu, bool open);
  static bool note_running(VgpuState& vgpu);
  sched::ProgressShares::Work look(VgpuState& vgpu, bool alone, int sharers, sched::Time now);
  sched::Time sample(sched::Time now);
  void follow(sched::Time now);
  void post_alone();

  const ArbiterOptions* const options_;
  GrantTable* const table_;
  Planning* const planning_;
  UnqueuedGates* const unqueued_;
  sched::ProgressShares shares_;
  sched::Time sampled_at_ = 0;  // or long ago: it is to be done at once
  sched::Time looked_at_ = -sched::kLongest;
};

}  // namespace bandsaw
