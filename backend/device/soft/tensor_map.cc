// Tensor maps: what the CUDA driver API demands of their parts (Tensor Map Object Management).
#include "backend/device/soft/tensor_map.h"

#include <cstring>

#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kLargestDimension = uint64_t{1} << 32, kLargestStride = uint64_t{1} << 40;
constexpr uint32_t kLargestBox = 256, kLargestElementStride = 8, kMostPixels = 1024;

CUresult refuse(const char* what) {
  log::warn("a tensor map is refused: the software device has no {}", what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool is_float(uint32_t type) {
  return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

bool valid_tensor(const vgpu_tensor_shape& shape) {
  const uint64_t align = shape.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
  if (shape.rank == 0 || shape.rank > kTensorRank || shape.address % align) return false;
  for (uint32_t i = 0; i < shape.rank; ++i) {
    if (shape.dimensions[i] == 0 || shape.dimensions[i] > kLargestDimension) return false;
    if (shape.element_strides[i] == 0 || shape.element_strides[i] > kLargestElementStride) return false;
    if (i && (shape.strides[i - 1] % align || shape.strides[i - 1] >= kLargestStride)) return false;
  }
  if (shape.interleave > CU_TENSOR_MAP_INTERLEAVE_32B || shape.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
      shape.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      shape.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return false;
  return shape.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || is_float(shape.data_type);
}

bool valid_tile(const vgpu_tensor_shape& shape) {
  for (uint32_t i = 0; i < shape.rank; ++i)
    if (shape.box[i] == 0 || shape.box[i] > kLargestBox) return false;
  return true;
}

bool valid_im2col(const vgpu_tensor_shape& shape) {
  constexpr int32_t kReach[] = {32768, 128, 16};
  if (shape.rank < 3 || shape.channels == 0 || shape.channels > kLargestBox || shape.pixels == 0 ||
      shape.pixels > kMostPixels)
    return false;
  for (uint32_t i = 0; i + 2 < shape.rank; ++i) {
    const int32_t reach = kReach[shape.rank - 3];
    for (const int32_t corner : {shape.lower[i], shape.upper[i]})
      if (corner < -reach || corner >= reach) return false;
    // The box must have a place.
    if (static_cast<int64_t>(shape.dimensions[i + 1]) + shape.upper[i] - shape.lower[i] <= 0) return false;
  }
  return true;
}

// Bytes of a row in shared memory that swizzling keeps together: no wider than its span.
CUresult check_row(const vgpu_tensor_shape& shape, uint64_t row) {
  constexpr uint64_t kSpans[] = {0, 32, 64, 128};
  if (row % 16) return CUDA_ERROR_INVALID_VALUE;
  if (shape.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE) return CUDA_SUCCESS;
  if (shape.swizzle > CU_TENSOR_MAP_SWIZZLE_128B) return refuse("swizzling in atoms of more than 16 bytes");
  if (row > kSpans[shape.swizzle]) return CUDA_ERROR_INVALID_VALUE;
  return row < kSpans[shape.swizzle] ? refuse("rows that are narrower than the span of their swizzling") : CUDA_SUCCESS;
}

}  // namespace

CUresult encode_tensor_map(const vgpu_tensor_shape& shape, vgpu_tensor_map* map) {
  if (shape.data_type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || !valid_tensor(shape)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t bytes = tensor_element_bytes(shape.data_type);
  if (!bytes) return refuse("packed elements of 4 or 6 bits, which came with compute capability 10.0");
  const bool tiled = shape.form == VGPU_TENSOR_TILED;
  if (shape.form == VGPU_TENSOR_IM2COL_WIDE) return refuse("wide im2col, which came with compute capability 10.0");
  if (!(tiled ? valid_tile(shape) : shape.form == VGPU_TENSOR_IM2COL && valid_im2col(shape)))
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return refuse("interleaved layouts");
  if (const CUresult refused = check_row(shape, uint64_t{bytes} * (tiled ? shape.box[0] : shape.channels)))
    return refused;

  TensorMap made{};
  made.address = shape.address;
  for (uint32_t i = 0; i < shape.rank; ++i) {
    made.last[i] = static_cast<uint32_t>(shape.dimensions[i] - 1);
    if (i) made.strides[i - 1] = shape.strides[i - 1];
    made.box[i] = static_cast<uint16_t>(shape.box[i]);
    made.element_strides[i] = static_cast<uint8_t>(shape.element_strides[i]);
  }
  for (uint32_t i = 0; !tiled && i + 2 < shape.rank; ++i) {
    made.lower[i] = static_cast<int16_t>(shape.lower[i]);
    made.upper[i] = static_cast<int16_t>(shape.upper[i]);
  }
  made.channels = static_cast<uint16_t>(shape.channels);
  made.pixels = static_cast<uint16_t>(shape.pixels);
  made.form = static_cast<uint8_t>(shape.form);
  made.type = static_cast<uint8_t>(shape.data_type);
  made.rank = static_cast<uint8_t>(shape.rank);
  made.interleave = static_cast<uint8_t>(shape.interleave);
  made.swizzle = static_cast<uint8_t>(shape.swizzle);
  made.fill = static_cast<uint8_t>(shape.fill);
  made.mark = kTensorMapMark;
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult move_tensor_map(const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) {
  TensorMap moved;
  std::memcpy(&moved, &old, sizeof moved);
  if (moved.mark != kTensorMapMark || address % 16) return CUDA_ERROR_INVALID_VALUE;
  moved.address = address;
  std::memcpy(map, &moved, sizeof moved);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
