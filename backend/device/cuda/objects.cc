#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {
namespace {

thread_local CUcontext current_context = nullptr;

}  // namespace

CUresult make_current(const Driver& driver, CUcontext context) {
  if (current_context == context) return CUDA_SUCCESS;
  const CUresult result = driver.cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) current_context = context;
  return result;
}

CUresult CudaStream::destroy() {
  if (!owned_.exchange(false) || !context->alive) return CUDA_SUCCESS;
  return driver_->cuStreamDestroy(handle);
}

CUresult CudaEvent::destroy() {
  if (!owned_.exchange(false) || !context->alive) return CUDA_SUCCESS;
  return driver_->cuEventDestroy(handle);
}

CudaLibrary::~CudaLibrary() { unload(); }

CUresult CudaLibrary::unload() { return loaded_.exchange(false) ? driver_->cuLibraryUnload(handle) : CUDA_SUCCESS; }

CudaModule::~CudaModule() { unload(); }

CUresult CudaModule::unload() {
  if (!loaded_.exchange(false) || !context->alive) return CUDA_SUCCESS;
  if (const CUresult result = make_current(*driver_, context->handle)) return result;
  return driver_->cuModuleUnload(handle);
}

CudaPool::~CudaPool() {
  if (owned_) driver_->cuMemPoolDestroy(handle);
}

CudaGraph::~CudaGraph() {
  if (owned) driver_->cuGraphDestroy(handle);
}

CudaExec::~CudaExec() {
  if (context->alive) driver_->cuGraphExecDestroy(handle);
}

}  // namespace bandsaw::cuda
