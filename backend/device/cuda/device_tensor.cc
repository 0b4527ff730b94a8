// Tensor maps: descriptors for the tensor memory accelerator, whose content only the driver knows (CUDA driver API,
// Tensor Map Object Management).
#include <cstring>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

static_assert(sizeof(CUtensorMap) == sizeof(vgpu_tensor_map));

CUresult encode(const Driver& driver, const vgpu_tensor_shape& shape, CUtensorMap* map) {
  const auto type = static_cast<CUtensorMapDataType>(shape.data_type);
  auto* const address = reinterpret_cast<void*>(shape.address);
  const auto interleave = static_cast<CUtensorMapInterleave>(shape.interleave);
  const auto swizzle = static_cast<CUtensorMapSwizzle>(shape.swizzle);
  const auto promotion = static_cast<CUtensorMapL2promotion>(shape.promotion);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(shape.fill);
  // The driver's 64-bit type is another one of the same size.
  cuuint64_t dimensions[5], strides[4];
  std::memcpy(dimensions, shape.dimensions, sizeof dimensions);
  std::memcpy(strides, shape.strides, sizeof strides);
  switch (shape.form) {
    case VGPU_TENSOR_TILED:
      return driver.cuTensorMapEncodeTiled(map, type, shape.rank, address, dimensions, strides, shape.box,
                                           shape.element_strides, interleave, swizzle, promotion, fill);
    case VGPU_TENSOR_IM2COL:
      return driver.cuTensorMapEncodeIm2col(map, type, shape.rank, address, dimensions, strides, shape.lower,
                                            shape.upper, shape.channels, shape.pixels, shape.element_strides,
                                            interleave, swizzle, promotion, fill);
    case VGPU_TENSOR_IM2COL_WIDE:
      return driver.cuTensorMapEncodeIm2colWide(map, type, shape.rank, address, dimensions, strides, shape.lower[0],
                                                shape.upper[0], shape.channels, shape.pixels, shape.element_strides,
                                                interleave, static_cast<CUtensorMapIm2ColWideMode>(shape.mode), swizzle,
                                                promotion, fill);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult CudaDevice::tensor_map_encode(const vgpu_tensor_shape& shape, vgpu_tensor_map* map) {
  if (shape.rank > 5) return CUDA_ERROR_INVALID_VALUE;
  alignas(64) CUtensorMap made{};
  const CUresult result = check(encode(*driver_, shape, &made));
  std::memcpy(map, &made, sizeof *map);
  return result;
}

CUresult CudaDevice::tensor_map_move(const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) {
  alignas(64) CUtensorMap moved;
  std::memcpy(&moved, &old, sizeof moved);
  const CUresult result = check(driver_->cuTensorMapReplaceAddress(&moved, reinterpret_cast<void*>(address)));
  std::memcpy(map, &moved, sizeof *map);
  return result;
}

}  // namespace bandsaw::cuda
