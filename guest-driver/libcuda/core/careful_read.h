// Reading memory of the program where a damaged structure may point anywhere.
#pragma once

#include <cstddef>

namespace bandsaw::libcuda {

// Copies `bytes` from `from`; false if not all of them can be read. Where the kernel offers no such copy to this
// process, it is a plain one. Thread-safe.
bool careful_read(void* to, const void* from, size_t bytes);

}  // namespace bandsaw::libcuda
