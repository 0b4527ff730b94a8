// CUDA arrays as the guest keeps them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/api/transfer.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

struct ArrayRecord {
  uint64_t handle = 0, context = 0;
  uint64_t parent = 0;  // of levels and planes: what they are of
  vgpu_array is{};
};

struct MipmapRecord {
  uint64_t handle = 0, context = 0;
};

HandleTable<ArrayRecord>& arrays();
HandleTable<MipmapRecord>& mipmaps();

// INVALID_HANDLE if the end's address is no array's handle, INVALID_VALUE if the box does not lie inside it.
CUresult check_array_box(const vgpu_copy_end& end, const Extent& extent);

}  // namespace bandsaw::libcuda
