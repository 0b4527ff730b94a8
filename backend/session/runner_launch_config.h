// Which device vgpud wants runners to be on, how that is to be shared, and how they are started because of it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/control/mps_priority.h"
#include "backend/control/sharing.h"
#include "backend/control/sm_part.h"
#include "memory/base/status.h"

namespace bandsaw {

struct SharingConfig {
  std::string device = "soft";  // that runners make: "soft", "soft:INDEX", or "cuda:" and anything
  uint32_t soft_sms = 0;        // SMs of a software device; 0: as many as suit the cores
  Sharing sharing = Sharing::kTimeSliced;
  PlanningMode mode = PlanningMode::kMps;
  MpsPriority priority = MpsPriority::kBelowNormal;
  std::string guard;               // what BANDSAW_GUARD of runners is
  bool replaceable = false;        // runners on a GPU may be followed by others
  uint32_t sm_thousandths = 1000;  // of the GPU's SMs, that MPS clients which start from now on may use
  SmPart sms;                      // that runners which start from now on have of the device
  std::string directory;           // of the MPS daemon's sockets; empty: there is none now
  std::string error;               // why there is none; empty: it is about to come
  std::string lost;                // the folder of a daemon that has died: its clients are lost
  // The GPU's UUID, as CUDA_VISIBLE_DEVICES takes it: runners then see no other, and whatever the order in which GPUs
  // are numbered, it is theirs. Empty: by the index of the device's name.
  std::string gpu;
  std::string device_error;  // why the device cannot be used now; empty: it can
};

// Members that the message lacks keep their values. EINVAL: a value is unknown; then nothing is taken over.
Status read_sharing_config(const nlohmann::json& request, SharingConfig* sharing_config);

// How runners are started from now on.
struct RunnerLaunchConfig {
  std::vector<std::string> variables;                // NAME=value, instead of those of the same names
  std::string socket;                                // that must be reachable for a runner to be of use; empty: none
  std::string gpu;                                   // that they are on, by its UUID; empty: any, or none
  std::string mps;                                   // the MPS daemon that they become clients of; empty: none
  MpsPriority priority = MpsPriority::kBelowNormal;  // as its clients
  // Not 0: no runner is started. EAGAIN: one will be soon, and guest processes wait. Any other: they are refused with
  // it.
  int refusal = 0;
  std::string why;
  bool operator==(const RunnerLaunchConfig&) const = default;
};

// The software device has no contexts: there sharing changes nothing but what runners are told.
RunnerLaunchConfig runner_launch_config(const SharingConfig& sharing_config);

inline bool is_cuda(const SharingConfig& sharing_config) { return sharing_config.device.starts_with("cuda"); }
// Whether both mean one physical device, which may have got another number or name.
bool same_device(const SharingConfig& one, const SharingConfig& other);

// Whether this sticky error of a context is a fault of the GPU, which takes all clients of the MPS daemon along.
bool is_shared_fault(uint32_t sticky);

// `environment` with `variables` instead of those of the same names.
std::vector<std::string> with_variables(const std::vector<std::string>& environment,
                                        const std::vector<std::string>& variables);

}  // namespace bandsaw
