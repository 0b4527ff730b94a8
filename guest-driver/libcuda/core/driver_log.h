// What went wrong, as cuLogs* gives it to programs: the warnings and errors of this library, the last ones kept.
#pragma once

#include <cuda.h>

#include <string_view>

namespace bandsaw::libcuda {

// Any thread. `line` has no newline. Callbacks run on the caller's thread, with no lock of ours held.
void keep_driver_log(CUlogLevel level, std::string_view line);

}  // namespace bandsaw::libcuda
