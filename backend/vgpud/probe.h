// What a device says of itself, asked of a runner that is started for it: whoever opens a GPU's driver keeps it open.
#pragma once

#include <chrono>
#include <string>

#include "backend/vgpud/device.h"
#include "memory/base/status.h"

namespace bandsaw {

// The answer of `RUNNER --probe KIND INDEX`, a line of JSON. Any thread; blocks for `timeout` at most. An error says
// why there is none.
Result<std::string> ask_device(const std::string& runner, std::chrono::milliseconds timeout,
                               const PhysicalDevice& device);

}  // namespace bandsaw
