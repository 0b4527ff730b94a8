// Logging for host programs: to stderr, from the level in BANDSAW_LOG on (trace, debug, info, warn, error).
//
// The library that writes the lines (spdlog) stays in log.cc: callers compile no formatting code, they hand their
// arguments over as they are. Threads: any.
#pragma once

#include <fmt/core.h>

#include "memory/base/status.h"

namespace bandsaw {

// `program` prefixes each line. Call once at the start of main.
void start_log(const char* program);

// From now on the log goes where stderr went so far, by a descriptor of its own: for programs that need descriptor 2
// for something else.
Status move_log_from_stderr();
// For what may not allocate, such as signal handlers.
int log_descriptor();

namespace log {

enum class Level { kDebug, kInfo, kWarn, kError, kCritical };

// Formats nothing if the level is not logged. Never throws.
void write(Level level, fmt::string_view format, fmt::format_args arguments) noexcept;
// From now on nothing is logged.
void silence();

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kDebug, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kInfo, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kWarn, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kError, format, fmt::make_format_args(arguments...));
}
template <typename... Args>
void critical(fmt::format_string<Args...> format, Args&&... arguments) {
  write(Level::kCritical, format, fmt::make_format_args(arguments...));
}

}  // namespace log
}  // namespace bandsaw
