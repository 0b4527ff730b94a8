// Launches as CUDA 3 had them: a function keeps its block shape, shared memory and parameters from call to call.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {
namespace {

constexpr size_t kParametersMost = 4096;  // CUDA's limit for these calls

struct Kept {
  unsigned block[3] = {0, 0, 0};
  unsigned shared_bytes = 0;
  size_t parameter_bytes = 0;  // cuParamSetSize
  std::vector<std::byte> parameters;
};

// By function handle; an entry outlives its function, whose handle is never given again.
struct Functions {
  std::mutex mutex;
  std::map<uint64_t, Kept> kept;
};

Functions& functions() {
  static Functions& all = *new Functions;
  return all;
}

// Changes what is kept of a function.
template <typename Change>
CUresult keep(CUfunction function, Change change) {
  Call call;
  if (!call.require_context()) return call.status();
  const FunctionRecord* const record = find_function(function);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(functions().mutex);
  return change(functions().kept[record->handle], *record);
}

CUresult set_parameter(CUfunction function, int offset, const void* value, size_t bytes) {
  if (!value || offset < 0) return CUDA_ERROR_INVALID_VALUE;
  const auto at = static_cast<size_t>(offset);
  return keep(function, [&](Kept& kept, const FunctionRecord&) {
    if (bytes > kParametersMost || at > kParametersMost - bytes) return CUDA_ERROR_INVALID_VALUE;
    if (kept.parameters.size() < at + bytes) kept.parameters.resize(at + bytes);
    std::memcpy(kept.parameters.data() + at, value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUfunction function, int width, int height, CUstream stream) {
  Kept kept;
  const CUresult result = keep(function, [&](const Kept& found, const FunctionRecord&) {
    kept = found;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  if (width <= 0 || height <= 0 || !kept.block[0]) return CUDA_ERROR_INVALID_VALUE;
  kept.parameters.resize(kept.parameter_bytes);
  size_t bytes = kept.parameter_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kept.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, kept.block[0],
                        kept.block[1], kept.block[2], kept.shared_bytes, stream, nullptr, bytes ? extra : nullptr);
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  return keep(function, [&](Kept& kept, const FunctionRecord& record) {
    const int64_t threads = int64_t{x} * y * z;
    if (threads > record.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return CUDA_ERROR_INVALID_VALUE;
    kept.block[0] = static_cast<unsigned>(x);
    kept.block[1] = static_cast<unsigned>(y);
    kept.block[2] = static_cast<unsigned>(z);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
  return keep(function, [&](Kept& kept, const FunctionRecord&) {
    kept.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction function, unsigned bytes) {
  return keep(function, [&](Kept& kept, const FunctionRecord&) {
    if (bytes > kParametersMost) return CUDA_ERROR_INVALID_VALUE;
    kept.parameter_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
  return set_parameter(function, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
  return set_parameter(function, offset, &value, sizeof(value));
}

CUresult cuParamSetv(CUfunction function, int offset, void* value, unsigned bytes) {
  return set_parameter(function, offset, value, bytes);
}

CUresult cuLaunch(CUfunction function) { return launch(function, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction function, int width, int height) { return launch(function, width, height, nullptr); }

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return launch(function, width, height, stream);
}

// One device: of several launches two would be on the same one, which CUDA forbids.
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
  Call call;
  if (!call.require_context()) return call.status();
  constexpr unsigned kFlags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (!launches || count != 1 || (flags & ~kFlags)) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_LAUNCH_PARAMS& one = launches[0];
  if (reinterpret_cast<uint64_t>(one.hStream) <= VGPU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_VALUE;
  return cuLaunchCooperativeKernel(one.function, one.gridDimX, one.gridDimY, one.gridDimZ, one.blockDimX, one.blockDimY,
                                   one.blockDimZ, one.sharedMemBytes, one.hStream, one.kernelParams);
}

}  // extern "C"
