// Entry points of CUDA 3.1 and older, whose sizes have 32 bits. Those that name device memory by an address of 32 bits
// are not here: no memory of this device has one.
#include <cuda.h>

#include <algorithm>
#include <cstdint>

extern "C" {

CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  if (!free_bytes || !total_bytes) return CUDA_ERROR_INVALID_VALUE;
  size_t free = 0, total = 0;
  const CUresult result = cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  *free_bytes = static_cast<unsigned>(std::min<size_t>(free, UINT32_MAX));
  *total_bytes = static_cast<unsigned>(std::min<size_t>(total, UINT32_MAX));
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void** pointer, unsigned bytes) { return cuMemAllocHost_v2(pointer, bytes); }

CUresult cuMemcpyHtoA(CUarray array, unsigned offset, const void* source, unsigned bytes) {
  return cuMemcpyHtoA_v2(array, offset, source, bytes);
}

CUresult cuMemcpyAtoH(void* destination, CUarray array, unsigned offset, unsigned bytes) {
  return cuMemcpyAtoH_v2(destination, array, offset, bytes);
}

CUresult cuMemcpyAtoA(CUarray to, unsigned to_offset, CUarray from, unsigned from_offset, unsigned bytes) {
  return cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes);
}

CUresult cuMemcpyHtoAAsync(CUarray array, unsigned offset, const void* source, unsigned bytes, CUstream stream) {
  return cuMemcpyHtoAAsync_v2(array, offset, source, bytes, stream);
}

CUresult cuMemcpyAtoHAsync(void* destination, CUarray array, unsigned offset, unsigned bytes, CUstream stream) {
  return cuMemcpyAtoHAsync_v2(destination, array, offset, bytes, stream);
}

}  // extern "C"

namespace {

// The members have the same names and meanings; only their sizes differ.
template <typename New, typename Old>
New widen_ends(const Old& old) {
  New made{};
  made.srcXInBytes = old.srcXInBytes, made.srcY = old.srcY, made.srcMemoryType = old.srcMemoryType;
  made.srcHost = old.srcHost, made.srcDevice = old.srcDevice, made.srcArray = old.srcArray;
  made.srcPitch = old.srcPitch;
  made.dstXInBytes = old.dstXInBytes, made.dstY = old.dstY, made.dstMemoryType = old.dstMemoryType;
  made.dstHost = old.dstHost, made.dstDevice = old.dstDevice, made.dstArray = old.dstArray;
  made.dstPitch = old.dstPitch;
  made.WidthInBytes = old.WidthInBytes, made.Height = old.Height;
  return made;
}

CUDA_MEMCPY2D widen_plane(const CUDA_MEMCPY2D_v1& old) { return widen_ends<CUDA_MEMCPY2D>(old); }

CUDA_MEMCPY3D widen_volume(const CUDA_MEMCPY3D_v1& old) {
  auto made = widen_ends<CUDA_MEMCPY3D>(old);
  made.srcZ = old.srcZ, made.srcLOD = old.srcLOD, made.srcHeight = old.srcHeight;
  made.dstZ = old.dstZ, made.dstLOD = old.dstLOD, made.dstHeight = old.dstHeight;
  made.Depth = old.Depth;
  return made;
}

}  // namespace

extern "C" {

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1* copy) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D wide = widen_plane(*copy);
  return cuMemcpy2D_v2(&wide);
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* copy) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D wide = widen_plane(*copy);
  return cuMemcpy2DUnaligned_v2(&wide);
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1* copy) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = widen_volume(*copy);
  return cuMemcpy3D_v2(&wide);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* copy, CUstream stream) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D wide = widen_plane(*copy);
  return cuMemcpy2DAsync_v2(&wide, stream);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* copy, CUstream stream) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = widen_volume(*copy);
  return cuMemcpy3DAsync_v2(&wide, stream);
}

}  // extern "C"
