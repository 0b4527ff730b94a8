// What devices say of themselves, asked of runners that are started for it: whoever opens a GPU's driver keeps it open.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "backend/vgpud/device.h"
#include "memory/base/status.h"

namespace bandsaw {

// The answer of `RUNNER --probe KIND INDEX`, a line of JSON. Any thread; blocks for `timeout` at most. An error says
// why there is none.
Result<std::string> ask_device(const std::string& runner, std::chrono::milliseconds timeout,
                               const PhysicalDevice& device);

// All GPUs of this host, in the order of their bus ids, as `RUNNER --list-gpus` says; MIG instances instead of a GPU
// that is cut into such. ENODEV: there are none, or NVML does not answer, and what to do.
Result<std::vector<PhysicalDevice>> list_gpus(const std::string& runner, std::chrono::milliseconds timeout);

// Starts `RUNNER ARGUMENTS` in our environment with one GPU in sight, or all if `visible` is empty. The caller reaps
// it.
Result<pid_t> spawn_probe(const std::string& runner, const std::vector<std::string>& arguments,
                          const std::string& visible, int out, int error);

}  // namespace bandsaw
