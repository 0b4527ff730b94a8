#include "memory/base/log.h"

#include <fcntl.h>
#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

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

}  // namespace bandsaw
