// Memory that has left the device, through a pipe into a file of the administrator's, and back.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/device/device.h"

namespace bandsaw::runner {

// `what`: of kSaveMemory (backend/control/runner_link.h). An errno; EPROTO: what came is not this memory. For
// kSavedMake other memory may come along, which is nobody's.
int save_away_memory(std::span<const AwayMemory> away, uint32_t what, int pipe);

// What comes first: what another runner needs to know, and in words what it could not have.
int write_state(int pipe, std::span<const std::byte> state, std::string_view words);
int read_state(int pipe, std::vector<std::byte>* state);

}  // namespace bandsaw::runner
