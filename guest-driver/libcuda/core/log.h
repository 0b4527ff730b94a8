// Lines on stderr, only when something is wrong or BANDSAW_LOG asks for them.
#pragma once

namespace bandsaw::libcuda {

// Levels as in BANDSAW_LOG: off, error (default), warn, info, debug, trace.
enum class Level { kOff, kError, kWarn, kInfo, kDebug, kTrace };
bool logs(Level level);
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// For a part of an entry point that is missing: logs `what` once (level warn) and the caller returns
// CUDA_ERROR_NOT_SUPPORTED. `what` is a string literal.
void log_unsupported(const char* what);

}  // namespace bandsaw::libcuda
