#include "memory/base/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>

namespace bandsaw {

void start_log(const char* program) {
  auto logger = spdlog::stderr_logger_mt(program);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n[%P] %l: %v");
  spdlog::set_default_logger(std::move(logger));
  if (const char* level = std::getenv("BANDSAW_LOG")) spdlog::cfg::helpers::load_levels(level);
}

}  // namespace bandsaw
