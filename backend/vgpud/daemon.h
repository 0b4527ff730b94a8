// vgpud as a whole.
#pragma once

#include "backend/vgpud/config.h"
#include "memory/base/status.h"

namespace bandsaw {

// Serves until SIGTERM, SIGINT or a shutdown request. Sessions live on after the signals, not after the request.
Status run_daemon(const Config& config);

}  // namespace bandsaw
