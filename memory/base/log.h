// Logging for host programs: spdlog to stderr, level from BANDSAW_LOG (trace, debug, info, warn, error).
#pragma once

#include <spdlog/spdlog.h>

#include "memory/base/status.h"

namespace bandsaw {

// `program` prefixes each line. Call once at the start of main.
void start_log(const char* program);

// From now on the log goes where stderr went so far, by a descriptor of its own: for programs that need descriptor 2
// for something else.
Status move_log_from_stderr();
// For what may not allocate, such as signal handlers.
int log_descriptor();

}  // namespace bandsaw
