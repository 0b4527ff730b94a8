// Files in memory that are physical host memory (vmm_host.h): of one size for ever, so that who maps them keeps all
// pages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "guest-driver/libcuda/core/numa.h"

namespace bandsaw::libcuda {

// Sizes, addresses and offsets of physical host memory are multiples of it.
inline constexpr size_t kHostGranularity = 2u << 20;

// The caller owns the descriptor; -1: no room. The file knows the NUMA node that it was made for, or kAnyNode.
int make_host_file(uint64_t bytes, int node);
// Whether it is such a file, of this process or another; then its size and node.
bool is_host_file(int file, uint64_t* bytes, int* node);

}  // namespace bandsaw::libcuda
