// Operations on memory words in stream order, as CUDA's batches name them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// What an operation is on the wire; its flags and address are not checked. NOT_SUPPORTED: a flush of remote writes.
CUresult wire_operation(const CUstreamBatchMemOpParams& from, vgpu_memory_op* made);

// INVALID_VALUE: no memory of the program's holds an aligned word of so many bytes there, or it is managed or of a
// pool.
CUresult check_word(CUdeviceptr address, uint32_t bytes);

}  // namespace bandsaw::libcuda
