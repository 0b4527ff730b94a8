// Logging for host programs: spdlog to stderr, level from BANDSAW_LOG (trace, debug, info, warn, error).
#pragma once

#include <spdlog/spdlog.h>

namespace bandsaw {

// `program` prefixes each line. Call once at the start of main.
void start_log(const char* program);

}  // namespace bandsaw
