// What a device is made with, and where guarded kernels may go on it.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device/code_keeper.h"
#include "vgpu-sched/ptx/guard_area.h"

namespace bandsaw {

struct DeviceConfig {
  uint64_t window_base = 0;      // reserved by the runner (PROT_NONE); VGPU_WINDOW_BYTES long
  uint64_t memory_share = 0;     // bytes
  int threads = 0;               // of a software device; 0: all cores, or as many as soft_sms keep busy
  uint32_t soft_sms = 0;         // SMs that a software device has; 0: as many as suit its threads
  std::string cache_directory;   // compiled code; empty: none
  CodeKeeper* keeper = nullptr;  // who writes there, outlives the device; null: the device itself
  // Of a software device: of each kernel so many launches are recorded, in the folder `timing` of that one; 0: none.
  uint32_t recorded_launches = 0;
  std::string recorded_gpu;  // for this GPU of the timing model; empty: the one that it knows first
  std::string name;          // of the device, as programs see it
  bool replaceable = false;  // of a GPU: it keeps what another runner needs to give the same addresses again
  // Of a GPU: its SMs are split into groups of so many, and all contexts run on `sm_groups` of these from `sm_first`
  // on; 0 groups: on all from there on, with those that make no group. Step 0: on all SMs.
  uint32_t sm_step = 0, sm_first = 0, sm_groups = 0;
};

// Where guarded kernels may go, and where they say that one went elsewhere (vgpu-sched/ptx/guard.h). All of the area
// and its slack is mapped: to memory of nobody's where nothing is allocated.
struct GuardPlace {
  ptx::GuardArea area;
  const volatile ptx::GuardReport* report = nullptr;  // as long as the device
};

}  // namespace bandsaw
