// What the arbiter knows of one virtual GPU. Each part of it belongs to the part of the arbiter in whose header it is
// declared; the others read it.
#pragma once

#include <array>
#include <map>
#include <string>

#include "backend/vgpud/arbiter/allowance.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/arbiter/bypass.h"
#include "backend/vgpud/arbiter/charging.h"
#include "backend/vgpud/arbiter/gate_state.h"
#include "backend/vgpud/arbiter/hardware_slices.h"
#include "backend/vgpud/arbiter/leases.h"
#include "backend/vgpud/arbiter/mps_progress.h"
#include "backend/vgpud/arbiter/mps_shares.h"
#include "backend/vgpud/arbiter/sm_partition.h"

namespace bandsaw {

// Where the compute gates of a virtual GPU belong. Those of the other engines belong to the queue of their engine.
enum class ComputeGates {
  kQueued,      // to the queue of the compute engine
  kBypass,      // to none: it goes beside the others (bypass.h)
  kMpsShared,   // to none: it goes beside the others, and gives way by its progress (mps_shares.h)
  kTimeSliced,  // to none: the hardware switches between all programs (hardware_slices.h)
};

struct VgpuState {
  std::string name;
  sched::VgpuId id = 0;
  EngineShares shares{};
  GrantPage* grant_page = nullptr;
  GrantPage* ungoverned_page = nullptr;  // the same page, while the arbiter does not govern it
  // `wants_mps`: as configured. `mps`: in force; it begins once no program from before the change is left.
  bool mps = false, wants_mps = false;
  sched::Time latency = 0;          // the most that its short work is to wait for others; 0: no bound
  sched::Time kernel_deadline = 0;  // for a time slice on the compute engine; 0: none

  ComputeGates compute_gates = ComputeGates::kQueued;
  std::map<uint32_t, GateStates> slots;
  std::array<uint32_t, kGateSlots> generation{};
  std::array<sched::Time, kEngines> last_wanted{};  // by queue; 0: never
  sched::Time room_asked_at = 0;                    // when others were asked last to make room for it
  double sm_part = 0;  // of the SMs, what the blocks of its planned kernels take; 0: not known, or not asked for

  std::array<Lease, kEngines> leases;  // by queue
  Account account;
  SmPartition partition;
  Allowance allowance;  // while it has a latency bound
  Bypass bypass;
  MpsShared shared;
  MpsProgress progress;  // while it is ComputeGates::kMpsShared
  SlicedVgpu sliced;

  // Its kernels go before those of the others on the device, if they are clients of MPS
  // (backend/control/mps_priority.h).
  bool goes_first() const { return latency > 0 || shares[kCompute].priority > 0; }
};

}  // namespace bandsaw
