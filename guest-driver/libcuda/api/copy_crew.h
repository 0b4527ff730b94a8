// Large copies between the program's memory and staging memory, by several threads: one core moves some 10 GB/s, a
// GPU's link five times that.
#pragma once

#include <cstddef>

namespace bandsaw::libcuda {

// As memcpy. `streaming`: past the caches, for a target that is not read soon. Any number of threads may call; one at a
// time gets help, the others copy alone.
void crew_copy(void* to, const void* from, size_t bytes, bool streaming);

}  // namespace bandsaw::libcuda
