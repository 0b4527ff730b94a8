// The functions behind the private table of the compute cache, as NVRTC 13 calls them.
#pragma once

#include <span>

namespace bandsaw::libcuda {

// Puts them to their slots. `slots`: at least seven.
void fill_compute_cache(std::span<const void*> slots);

}  // namespace bandsaw::libcuda
