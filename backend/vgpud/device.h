// A physical device that virtual GPUs of this host are cut from: what the configuration says of it, completed by what
// the device says of itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/sharing.h"
#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw {

// `name` is what administrators and virtual GPUs know it by: "soft", "soft:1", "cuda:0", or "cuda:" and a UUID.
// `memory` 0: as much as there is. `sms` of a software device: those that it shows its programs; 0: four for each core.
// `policy`, `queues` and `planning`: the device's own, whatever holds for the others; not said: as for the others.
struct PhysicalDevice : DeviceCapacity {
  std::string kind = "soft";        // or "cuda"
  uint32_t index = 0;               // of a software device, or of a GPU in the order of PCI bus ids
  std::string model, uuid, driver;  // for people; the last two are empty for the software device
  // The GPU, or MIG instance, as CUDA_VISIBLE_DEVICES takes it: "GPU-" or "MIG-" and the UUID. Whatever else is plugged
  // in, it means this one. Empty: a software device, or a GPU that has not been found.
  std::string visible;
  std::string policy, queues;
  std::optional<PlanningMode> planning;
  std::string lost;      // why it cannot be used now; empty: it can
  bool drained = false;  // an administrator wants no new virtual GPUs on it
};

// "soft", "soft:1", "cuda", "cuda:1", "cuda:GPU-..." and "cuda:MIG-...": a device of this name that is still to be
// found. EINVAL: no such form.
Result<PhysicalDevice> parse_device(const std::string& name);

inline constexpr std::chrono::milliseconds kProbeTimeout{30000};  // a driver that nobody uses takes seconds to wake

// Fills in name, model, uuid, driver, memory and SMs. A GPU is asked by a runner of its own (`RUNNER --probe cuda
// INDEX`, one line of JSON), because whoever opens the driver keeps it open. ENODEV says what the cause is and what to
// do; EINVAL: more memory is configured than there is.
Status find_device(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device);

// Asks whether a device that was found, or lost, can be used now; if so, it says what it is. Any thread. Errors as
// above.
Status find_again(const std::string& runner, std::chrono::milliseconds timeout, PhysicalDevice* device);

// Finds all of them. One that cannot be used is `lost`, and the others go on without it; none can: ENODEV. `uid` is the
// first that runners will have, 0: ours; device nodes that it cannot open are warned of. EINVAL: as above, or two names
// mean one GPU.
Status find_devices(const std::string& runner, uid_t uid, std::chrono::milliseconds timeout,
                    std::vector<PhysicalDevice>* devices);

// `path` (as LD_LIBRARY_PATH) without the folders whose libcuda.so.1 is Bandsaw's own: a runner must find the driver.
std::string without_own_driver(const std::string& path);

}  // namespace bandsaw
