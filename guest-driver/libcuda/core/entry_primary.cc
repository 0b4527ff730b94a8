// cuDevicePrimaryCtx*: one context of each device that everybody who asks shares, counted.
#include <cuda.h>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"

using namespace bandsaw;
using namespace bandsaw::libcuda;

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  VirtualGpu& gpu = gpu_at(dev);
  if (const CUresult result = gpu.health(); result != CUDA_SUCCESS) return result;
  Context* const primary = gpu.primary;
  bool created = false;
  {
    std::lock_guard lock(context_mutex());
    if (!primary->alive()) {
      Call call(gpu);
      CUresult result = host_blocks().show_all(gpu);
      if (result == CUDA_SUCCESS) result = wire::context_create(call, primary->flags, 1, &primary->handle);
      if (result != CUDA_SUCCESS) return result;
      created = true;
    }
    primary->retains++;
  }
  if (created) tell_created(primary);
  *pctx = to_program(primary);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  Context* const primary = gpu_at(dev).primary;
  {
    std::lock_guard lock(context_mutex());
    if (primary->retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary->retains > 0) return CUDA_SUCCESS;
  }
  end_context(primary);  // calls into other libraries: no lock held
  std::lock_guard lock(context_mutex());
  if (primary->retains > 0) return CUDA_SUCCESS;  // another thread has retained it meanwhile
  Call call(gpu_at(dev));
  const CUresult result = wire::context_destroy(call, primary->handle);
  primary->handle = 0;
  return result;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  Context* const primary = gpu_at(dev).primary;
  if (!primary->alive()) return CUDA_SUCCESS;
  end_context(primary);
  std::lock_guard lock(context_mutex());
  primary->cache_config = CU_FUNC_CACHE_PREFER_NONE;
  Call call(gpu_at(dev));
  return wire::context_reset(call, primary->handle);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(context_mutex());
  *flags = gpu_at(dev).primary->flags;
  *active = gpu_at(dev).primary->alive();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  if (!are_flags(flags) || (flags & CU_CTX_MAP_HOST)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(context_mutex());
  gpu_at(dev).primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

}  // extern "C"
