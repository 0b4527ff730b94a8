#include "guest-driver/libcuda/core/log.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "guest-driver/libcuda/core/driver_log.h"

namespace bandsaw::libcuda {
namespace {

Level read_level() {
  const char* text = std::getenv("BANDSAW_LOG");
  if (!text || !*text) return Level::kWarn;
  const char* names[] = {"off", "error", "warn", "info", "debug", "trace"};
  for (int level = 0; level < 6; level++) {
    if (std::strcmp(text, names[level]) == 0) return static_cast<Level>(level);
  }
  return Level::kInfo;
}

Level level() {
  static const Level chosen = read_level();
  return chosen;
}

}  // namespace

bool logs(Level wanted) { return wanted <= level(); }

void log(Level wanted, const char* format, ...) {
  const bool for_program = wanted == Level::kError || wanted == Level::kWarn;  // cuLogs*
  if (!logs(wanted) && !for_program) return;
  char line[1024];
  const int prefix = std::snprintf(line, sizeof(line), "libcuda (bandsaw): ");
  int used = prefix;
  va_list arguments;
  va_start(arguments, format);
  used += std::vsnprintf(line + used, sizeof(line) - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  if (used > static_cast<int>(sizeof(line)) - 2) used = static_cast<int>(sizeof(line)) - 2;
  if (for_program) {
    keep_driver_log(wanted == Level::kError ? CU_LOG_LEVEL_ERROR : CU_LOG_LEVEL_WARNING,
                    {line + prefix, static_cast<size_t>(used - prefix)});
  }
  if (!logs(wanted)) return;
  line[used++] = '\n';
  // One write, so that lines of several threads do not mix; there is nobody to tell if it fails.
  if (write(STDERR_FILENO, line, static_cast<size_t>(used)) < 0) return;
}

void notice(const char* format, ...) {
  if (!logs(Level::kWarn)) return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  char line[300];
  const int bytes = std::snprintf(line, sizeof(line), "libcuda (bandsaw): %s\n", text);
  if (write(STDERR_FILENO, line, static_cast<size_t>(bytes)) < 0) return;
}

void log_unsupported(const char* what) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static auto* said = new std::set<std::string>;
  pthread_mutex_lock(&mutex);
  const bool first = said->insert(what).second;
  pthread_mutex_unlock(&mutex);
  if (first) log(Level::kWarn, "%s is not supported", what);
}

CUresult missing(const char* symbol, std::atomic<bool>* said) {
  if (!said->exchange(true)) log(Level::kWarn, "%s is not implemented", symbol);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace bandsaw::libcuda
