// The launcher's own side (launcher.h).
#pragma once

#include "backend/sandbox/launcher.h"

namespace bandsaw {

// Runs in the launcher's process, and ends it when the session has gone.
[[noreturn]] void run_launcher(const LauncherConfig& config, int socket);

}  // namespace bandsaw
