// Kernels without end: a deadline for the time that one time slice of a virtual GPU is on the compute engine.
//
// What counts is GPU time that the time slice may have had since it became the oldest at its gate. Where several
// virtual GPUs are on the engine, that is this one's part: what the hardware's time slices gave it
// (hardware_slices.h), or an equal part where nothing says more. What waits on the device for something else counts
// too: the arbiter cannot tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/vgpud/arbiter/runner_end.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw {

class GrantTable;
struct ArbiterOptions;
struct GateState;
struct VgpuState;

// Of one compute gate: the oldest time slice there.
struct OldestSlice {
  bool runs = false;
  uint32_t ended = 0;         // how many had ended before it
  sched::Time since = 0;      // when it was seen first
  sched::Time seen_at = 0;    // when it was seen last
  sched::Time had = 0;        // GPU time, up to then
  uint64_t busy_ns = 0;       // what its virtual GPU was charged by then
  sched::Time ended_at = -1;  // when its runner's end was asked for
};

class KernelDeadlines {
 public:
  // Both outlive this.
  KernelDeadlines(const ArbiterOptions* options, GrantTable* table) : options_(options), table_(table) {}

  // Appends runners that are to be ended. Returns when to be called again.
  sched::Time review(sched::Time now, std::vector<RunnerEnd>* ends) const;

 private:
  sched::Time watch(VgpuState& vgpu, uint32_t slot, int running, sched::Time now, std::vector<RunnerEnd>* ends) const;

  const ArbiterOptions* const options_;
  GrantTable* const table_;
};

}  // namespace bandsaw
