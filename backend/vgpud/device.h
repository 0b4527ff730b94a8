// The physical device that this host's virtual GPUs are cut from: what the configuration says of it, completed by what
// the device says of itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw {

// `name` is what virtual GPUs and runners know it by: "soft", or "cuda:" and the index. `memory` 0: as much as there
// is.
struct PhysicalDevice : DeviceCapacity {
  std::string kind = "soft";        // or "cuda"
  uint32_t index = 0;               // in the driver's order
  std::string model, uuid, driver;  // for people; the last two are empty for the software device
};

inline constexpr std::chrono::milliseconds kProbeTimeout{30000};  // a driver that nobody uses takes seconds to wake

// Fills in name, model, uuid, driver, memory and SMs. A GPU is asked by a runner of its own (`RUNNER --probe cuda
// INDEX`, one line of JSON), because whoever opens the driver keeps it open. `uid` is the first that runners will have,
// 0: ours; device nodes that it cannot open are warned of. ENODEV says what the cause is and what to do; EINVAL: more
// memory is configured than there is.
Status find_device(const std::string& runner, uid_t uid, std::chrono::milliseconds timeout, PhysicalDevice* device);

// `path` (as LD_LIBRARY_PATH) without the folders whose libcuda.so.1 is Bandsaw's own: a runner must find the driver.
std::string without_own_driver(const std::string& path);

}  // namespace bandsaw
