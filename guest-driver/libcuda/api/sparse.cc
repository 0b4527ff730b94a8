// What CUDA says of arrays whose memory the program maps itself. None is: cuArray3DCreate refuses to make such ones.
#include <cuda.h>

#include "guest-driver/libcuda/api/array.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/process.h"

namespace bandsaw::libcuda {
namespace {

template <typename Table, typename Handle>
CUresult not_mapped_by_program(const Table& table, Handle handle, CUdevice device) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (!table.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array, CUdevice device) {
  return not_mapped_by_program(arrays(), array, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUmipmappedArray mipmap,
                                               CUdevice device) {
  return not_mapped_by_program(mipmaps(), mipmap, device);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray array) {
  return not_mapped_by_program(arrays(), array, 0);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray mipmap) {
  return not_mapped_by_program(mipmaps(), mipmap, 0);
}

}  // extern "C"
