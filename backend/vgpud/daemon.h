// vgpud as a whole.
#pragma once

#include <functional>

#include "backend/vgpud/config.h"
#include "memory/base/status.h"

namespace bandsaw {

// Why it ended.
enum class DaemonEnd { kStopped, kReload };

// Serves until SIGTERM, SIGINT, a shutdown request, or SIGHUP if `check_config` then finds the configuration right; if
// not, it says why and goes on. Sessions live on after the signals, not after the request.
Result<DaemonEnd> run_daemon(const Config& config, std::function<Status()> check_config);

}  // namespace bandsaw
