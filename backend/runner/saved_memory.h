// Memory that has left the device, through a pipe into a file of the administrator's, and back.
#pragma once

#include <cstdint>
#include <span>

#include "backend/device/device.h"

namespace bandsaw::runner {

// `what`: of kSaveMemory (backend/control/runner_link.h). An errno; EPROTO: what came is not this memory.
int save_away_memory(std::span<const AwayMemory> away, uint32_t what, int pipe);

}  // namespace bandsaw::runner
