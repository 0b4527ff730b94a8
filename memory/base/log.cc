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
#include <iterator>
#include <optional>
#include <string>

#include "memory/base/journal.h"
#include "memory/base/log_about.h"

namespace bandsaw {
namespace {

using FileSink = spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;

std::atomic<int> descriptor{STDERR_FILENO};
std::optional<Journal> journal;

void log_to(const std::string& program, std::FILE* file) {
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<FileSink>(file));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n[%P] %l: %v");
  spdlog::set_default_logger(std::move(logger));
  if (const char* level = std::getenv("BANDSAW_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace

void start_log(const char* program) {
  log_to(program, stderr);
  journal = Journal::behind(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
}

Status move_log_from_stderr() {
  const int moved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  std::FILE* const file = moved >= 0 ? fdopen(moved, "w") : nullptr;
  if (!file) return Status::system("a descriptor for the log");
  log_to(spdlog::default_logger()->name(), file);
  journal.reset();
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

// As syslog has them.
const char* priority(Level level) {
  switch (level) {
    case Level::kDebug:
      return "7";
    case Level::kInfo:
      return "6";
    case Level::kWarn:
      return "4";
    case Level::kError:
      return "3";
    case Level::kCritical:
      break;
  }
  return "2";
}

}  // namespace

void write(Level level, const About& about, fmt::string_view format, fmt::format_args arguments) noexcept {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  const spdlog::level::level_enum wanted = spdlog_level(level);
  if (!logger->should_log(wanted)) return;
  try {
    std::string text = about.vgpu.empty() || !about.begins ? "" : fmt::format("{}: ", about.vgpu);
    fmt::vformat_to(std::back_inserter(text), format, arguments);
    if (journal && journal->send({{"MESSAGE", text},
                                  {"PRIORITY", priority(level)},
                                  {"SYSLOG_IDENTIFIER", logger->name()},
                                  {"VGPU", about.vgpu},
                                  {"DEVICE", about.device}})) {
      return;
    }
    logger->log(wanted, spdlog::string_view_t(text));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a line of the log was lost: %s\n", error.what());
  }
}

void write(Level level, fmt::string_view format, fmt::format_args arguments) noexcept {
  write(level, About{}, format, arguments);
}

void silence() { spdlog::set_level(spdlog::level::off); }

}  // namespace log
}  // namespace bandsaw
