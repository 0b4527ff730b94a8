#include "memory/base/log.h"

#include <fcntl.h>
#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace bandsaw {
namespace {

using FileSink = spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;

std::atomic<int> descriptor{STDERR_FILENO};

void log_to(const std::string& program, std::FILE* file) {
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<FileSink>(file));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n[%P] %l: %v");
  spdlog::set_default_logger(std::move(logger));
  if (const char* level = std::getenv("BANDSAW_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace

void start_log(const char* program) { log_to(program, stderr); }

Status move_log_from_stderr() {
  const int moved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  std::FILE* const file = moved >= 0 ? fdopen(moved, "w") : nullptr;
  if (!file) return Status::system("a descriptor for the log");
  log_to(spdlog::default_logger()->name(), file);
  descriptor = moved;
  return {};
}

int log_descriptor() { return descriptor; }

namespace log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kCritical:
      break;
  }
  return spdlog::level::critical;
}

}  // namespace

void write(Level level, fmt::string_view format, fmt::format_args arguments) noexcept {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  const spdlog::level::level_enum wanted = spdlog_level(level);
  if (!logger->should_log(wanted)) return;
  try {
    logger->log(wanted, spdlog::string_view_t(fmt::vformat(format, arguments)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a line of the log was lost: %s\n", error.what());
  }
}

void silence() { spdlog::set_level(spdlog::level::off); }

}  // namespace log
}  // namespace bandsaw
