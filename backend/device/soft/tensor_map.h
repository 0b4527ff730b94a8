// Tensor maps of the software device: what cuTensorMapEncode* was told, in the 128 bytes that programs pass around. A
// kernel may have written them itself, so whoever reads one checks it again.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::soft {

struct TensorMap {
  uint64_t address;
  uint64_t strides[4];         // bytes, of all dimensions but the first
  uint32_t last[5];            // dimensions less 1
  uint16_t box[5];             // tiled: elements
  int16_t lower[3], upper[3];  // im2col: corners, width first
  uint16_t channels, pixels;   // im2col
  uint8_t element_strides[5];
  uint8_t form;  // vgpu_tensor_form
  uint8_t type;  // CUtensorMapDataType
  uint8_t rank, interleave, swizzle, fill;
  uint8_t unused[27];
  uint32_t mark;  // kTensorMapMark
};
static_assert(sizeof(TensorMap) == sizeof(vgpu_tensor_map));

inline constexpr uint32_t kTensorMapMark = 0x70616d74;
inline constexpr uint32_t kTensorRank = 5;

// Bytes of an element; 0: a type that this device does not have.
inline uint32_t tensor_element_bytes(uint32_t type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    default:
      return 0;
  }
}

// INVALID_VALUE for what CUDA refuses; NOT_SUPPORTED, with a line in the log, for what only this device refuses.
CUresult encode_tensor_map(const vgpu_tensor_shape& shape, vgpu_tensor_map* map);
CUresult move_tensor_map(const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map);

}  // namespace bandsaw::soft
