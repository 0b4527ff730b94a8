// One vgpud per folder: a locked pid file.
#pragma once

#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Holds the lock while the descriptor lives. EEXIST names the pid of the one that runs.
Result<UniqueFd> take_lock(const std::string& path);

}  // namespace bandsaw
