// Lines on stderr, only when something is wrong or BANDSAW_LOG asks for them.
#pragma once

#include <cuda.h>

#include <atomic>

namespace bandsaw::libcuda {

// Levels as in BANDSAW_LOG: off, error, warn (default), info, debug, trace.
enum class Level { kOff, kError, kWarn, kInfo, kDebug, kTrace };
bool logs(Level level);
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What a person who waits wants to know and is nothing wrong: a line on stderr, unless BANDSAW_LOG is off or error.
void notice(const char* format, ...) __attribute__((format(printf, 1, 2)));

// For a part of an entry point that is missing: logs `what` once (level warn) and the caller returns
// CUDA_ERROR_NOT_SUPPORTED. `what` is a string literal.
void log_unsupported(const char* what);

// For generated stubs: says once that `symbol` is not implemented. Returns CUDA_ERROR_NOT_SUPPORTED.
CUresult missing(const char* symbol, std::atomic<bool>* said);

}  // namespace bandsaw::libcuda
