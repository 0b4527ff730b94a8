// Memory that is made where it is mapped (mmap, MAP_POPULATE). The kernel makes its pages by one thread, and small ones
// where large pages are only for those who ask. NVIDIA's driver (580, an H200) makes one map of 283 MB while a context
// leaves the GPU, which took 67 ms of a suspend.
#pragma once

#include <cstddef>

namespace bandsaw::runner {

// The arguments of mmap without offset. True: `map_populated` does what was asked.
bool is_large_populated_map(const void* where, size_t bytes, int protection, int flags, int file);
// As mmap, but its pages are large ones where the kernel has such, made by several threads. MAP_FAILED with errno where
// mmap fails; as there, pages that could not be made are made by who touches them. Any thread may call it.
void* map_populated(size_t bytes, int protection, int flags) noexcept;

}  // namespace bandsaw::runner
