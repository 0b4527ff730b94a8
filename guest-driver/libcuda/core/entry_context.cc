// cuCtx*: created contexts and the calling thread's stack of current ones.
#include <cuda.h>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"

using namespace bandsaw;
using namespace bandsaw::libcuda;

namespace {

constexpr unsigned kNewApi = 3020;  // of cuCtxCreate_v2 and later, cuCtxPopCurrent_v2 ...

CUresult create(CUcontext* context, unsigned flags, CUdevice device, unsigned api_version,
                const char* entry = __builtin_FUNCTION()) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (!context || !are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  VirtualGpu& gpu = gpu_at(device);
  Call call(gpu, entry);
  uint64_t handle = 0;
  CUresult result = host_blocks().show_all(gpu);
  if (result == CUDA_SUCCESS) result = wire::context_create(call, flags, 0, &handle);
  if (result != CUDA_SUCCESS) return result;
  Context* const created = new_context(&gpu, false);
  created->handle = handle;
  created->flags = flags;
  created->api_version = api_version;
  this_thread().contexts.push_back(created);
  *context = to_program(created);
  tell_created(created);
  return CUDA_SUCCESS;
}

// The context that an entry point is about, alive; or what to return.
CUresult find_alive(CUcontext context, Context** found) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  *found = from_program(context);
  if (!*found) {
    const CUresult result = health();
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
  }
  if (const CUresult result = (*found)->gpu->health(); result != CUDA_SUCCESS) return result;
  return (*found)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult pop(CUcontext* context) {
  if (const CUresult result = health(); result != CUDA_SUCCESS) return result;
  auto& stack = this_thread().contexts;
  if (stack.empty() || !stack.back()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = to_program(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult synchronise(CUcontext context, const char* entry = __builtin_FUNCTION()) {
  Context* found = nullptr;
  if (const CUresult result = find_alive(context, &found); result != CUDA_SUCCESS) return result;
  Call call(entry);
  const managed::WorkWait wait(managed_work(), found->handle);
  tell_synchronising();
  const CUresult result = wire::context_synchronize(call, found->handle);
  if (result != CUDA_SUCCESS) return result;
  wait.succeeded();
  tell_synchronised();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev, 3010);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev, kNewApi);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* params, int count, unsigned int flags,
                                CUdevice dev) {
  if (params && count) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev, kNewApi);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags, CUdevice dev) {
  if (params && params->numExecAffinityParams) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params && params->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
  return create(pctx, flags, dev, kNewApi);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx) {
  if (!ctx) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(ctx, &found); result != CUDA_SUCCESS) return result;
  if (found->primary || found->sms.count) return CUDA_ERROR_INVALID_CONTEXT;
  end_context(found);
  Call call;
  const CUresult result = wire::context_destroy(call, found->handle);
  if (result != CUDA_SUCCESS) return result;
  found->handle = 0;
  auto& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == found) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

// These two are deprecated. They count their own uses of a context, beside its creation.
CUresult CUDAAPI cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  if (!pctx || flags) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  found->attaches++;
  *pctx = to_program(found);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDetach(CUcontext ctx) {
  Context* found = nullptr;
  if (const CUresult result = find_alive(ctx, &found); result != CUDA_SUCCESS) return result;
  if (found->attaches == 0) return cuCtxDestroy_v2(ctx);
  found->attaches--;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!ctx) return CUDA_ERROR_INVALID_VALUE;
  Context* const context = from_program(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = context->gpu->health(); result != CUDA_SUCCESS) return result;
  this_thread().contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }
CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* pctx) { return pop(pctx); }
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* pctx) { return pop(pctx); }

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  Context* const context = ctx ? from_program(ctx) : nullptr;
  if (ctx && !context) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = this_thread().contexts;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* pctx) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  *pctx = to_program(current_context());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  const Context* const context = from_program(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  *flags = told_flags(*found);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  found->flags = flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (!ctxId) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(ctx, &found); result != CUDA_SUCCESS) return result;
  *ctxId = found->id;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(ctx, &found); result != CUDA_SUCCESS) return result;
  *version = found->api_version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void) { return synchronise(nullptr); }
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) { return synchronise(ctx); }

// Preferences that this device is free to ignore; a program reads back what it set.
CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  if (!pconfig) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  *pconfig = found->cache_config;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  if (!is_configuration(config)) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  found->cache_config = config;
  return CUDA_SUCCESS;
}

// The bank size is fixed since Maxwell: setting it has no effect there either.
CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  if (!pConfig) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
  if (!is_configuration(config)) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  return find_alive(nullptr, &found);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  if (leastPriority) *leastPriority = found->gpu->info.least_priority;
  if (greatestPriority) *greatestPriority = found->gpu->info.greatest_priority;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  if (!pExecAffinity) return CUDA_ERROR_INVALID_VALUE;
  Context* found = nullptr;
  if (const CUresult result = find_alive(nullptr, &found); result != CUDA_SUCCESS) return result;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val =
      static_cast<unsigned>(found->gpu->info.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  return CUDA_SUCCESS;
}

}  // extern "C"
