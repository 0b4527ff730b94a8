// A piece of memory that the program and a runner see, as the program knows it.
#pragma once

#include <cstdint>

namespace bandsaw::libcuda {

class SharedMemory;

struct SharedBlock {
  void* address = nullptr;
  uint64_t bytes = 0;              // whole pages
  uint32_t region = 0;             // its id in control requests
  uint32_t flags = 0;              // VGPU_REGION_*
  SharedMemory* memory = nullptr;  // which has it; of allocate()
};

}  // namespace bandsaw::libcuda
