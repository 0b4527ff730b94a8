// How the process of a session is started: the command line that says what it is, and what it is given.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/config.h"
#include "backend/vgpud/gpu.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// As many as a virtual GPU of a software device sees; 0: by the cores, or it is a GPU.
uint32_t soft_sms(const Gpu& gpu);

// The program first. `gpu`: that of the spec.
std::vector<std::string> session_arguments(const Config& config, const VgpuSpec& spec, const Gpu& gpu,
                                           const VgpuUsers& users);

// Its standard error goes to `log`; it writes to `ready` once it can be reached. `cgroup`: the file through which it
// joins one; empty: it joins none.
Result<pid_t> start_session(std::vector<std::string> arguments, const UniqueFd& log, const UniqueFd& ready,
                            const UniqueFd& cgroup);

}  // namespace bandsaw
