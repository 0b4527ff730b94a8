// Kernel launches. The common path takes no lock, allocates nothing and makes no system call.
#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/launch.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Events that a launch attribute asks to record; recorded after the launch, which is late but never early.
struct EventAfter {
  CUevent event = nullptr;
  unsigned flags = 0;
};
constexpr int kMaxEventsAfter = 2;

CUresult read_extra(void** extra, const FunctionRecord& function, ParameterBuffer* buffer) {
  const void* data = nullptr;
  const size_t* bytes = nullptr;
  for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      data = at[1];
    } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(at[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!data || !bytes) return function.parameter_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (*bytes > function.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  std::memcpy(buffer->bytes, data, *bytes);
  std::memset(buffer->bytes + *bytes, 0, function.parameter_bytes - *bytes);  // the driver takes short ones too
  return CUDA_SUCCESS;
}

CUresult check_cluster(const vgpu_launch& launch, const FunctionRecord& function) {
  const bool given = launch.cluster[0] != 0, required = function.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  if (!given && !required) return CUDA_SUCCESS;
  uint32_t cluster[3];
  for (int i = 0; i < 3; ++i) {
    const auto of_function = static_cast<CUfunction_attribute>(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);
    cluster[i] = required ? static_cast<uint32_t>(function.attribute(of_function)) : launch.cluster[i];
    if (cluster[i] == 0 || (given && launch.cluster[i] != cluster[i])) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const uint64_t size = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (!device_attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr uint64_t kPortable = 8, kLargest = 16;
  const bool large = function.attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  if (size > (large ? kLargest : kPortable)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] % cluster[i]) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

CUresult check_cooperative(const vgpu_launch& launch, FunctionRecord* function) {
  if (!device_attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)) return CUDA_ERROR_NOT_SUPPORTED;
  uint32_t per_sm = 0;
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const CUresult result = occupancy_of(function, threads, launch.shared_bytes, &per_sm);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  const uint64_t fit = uint64_t{per_sm} * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return blocks <= fit ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

struct Dimensions {
  unsigned x, y, z;
};

vgpu_launch shape(const FunctionRecord& function, Dimensions grid, Dimensions block, unsigned shared_bytes) {
  vgpu_launch launch{};
  launch.function = function.handle;
  launch.grid[0] = grid.x, launch.grid[1] = grid.y, launch.grid[2] = grid.z;
  launch.block[0] = block.x, launch.block[1] = block.y, launch.block[2] = block.z;
  launch.shared_bytes = shared_bytes;
  return launch;
}

// The environment as it was at the first launch.
bool launches_block() {
  static const bool block = [] {
    const char* const text = std::getenv("CUDA_LAUNCH_BLOCKING");
    return text && std::atoi(text) != 0;
  }();
  return block;
}

CUresult wait_for_launch(Call& call, uint64_t stream) {
  bool capturing = false;
  const CUresult result = is_capturing(stream, &capturing);
  return result != CUDA_SUCCESS || capturing ? result : wire::stream_synchronize(call, stream);
}

// A kernel of a library is known on every device; a function belongs to its context's.
CUresult function_here(Call& call, FunctionRecord** function) {
  if (bandsaw::wire::kind_of((*function)->handle) != bandsaw::wire::HandleKind::kKernel)
    return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t handle = 0;
  const CUresult result = function_in_context((*function)->handle, &handle);
  if (result != CUDA_SUCCESS) return result;
  *function = find_function(handle);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult submit(Call& call, FunctionRecord* function, vgpu_launch* launch, CUstream stream, void** parameters,
                void** extra) {
  if (!call.is_here(function->handle)) {
    const CUresult found = function_here(call, &function);
    if (found != CUDA_SUCCESS) return found;
    launch->function = function->handle;
  }
  uint64_t on = 0;
  CUresult result = check_work_stream(stream, &on);
  if (result == CUDA_SUCCESS && !call.is_here(on)) result = CUDA_ERROR_INVALID_HANDLE;
  if (result != CUDA_SUCCESS) return result;
  launch->stream = on;
  result = check_launch(function, *launch);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(refuse_captured(call, on));  // no launch, and no graph without it
    return result;
  }
  ParameterBuffer buffer;
  result = pack_parameters(*function, parameters, extra, &buffer);
  if (result != CUDA_SUCCESS) return result;
  {
    const DeviceWork work(call, on);
    result = work.status();
    if (result == CUDA_SUCCESS) result = wire::launch(call, *launch, {buffer.bytes, function->parameter_bytes});
  }
  return result == CUDA_SUCCESS ? after_launch(call, on) : result;
}

// Fills `launch` from one attribute. Hints that this contract does not carry are accepted and dropped.
CUresult read_attribute(const CUlaunchAttribute& attribute, vgpu_launch* launch, EventAfter* events, int* count) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      if (value.cooperative) launch->flags |= VGPU_LAUNCH_COOPERATIVE;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      if (!value.clusterDim.x || !value.clusterDim.y || !value.clusterDim.z) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      launch->cluster[0] = value.clusterDim.x;
      launch->cluster[1] = value.clusterDim.y;
      launch->cluster[2] = value.clusterDim.z;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      launch->priority = value.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      if (*count == kMaxEventsAfter) return CUDA_ERROR_INVALID_VALUE;
      events[(*count)++] = {value.programmaticEvent.event, static_cast<unsigned>(value.programmaticEvent.flags)};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      if (*count == kMaxEventsAfter) return CUDA_ERROR_INVALID_VALUE;
      events[(*count)++] = {value.launchCompletionEvent.event,
                            static_cast<unsigned>(value.launchCompletionEvent.flags)};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: {
      const auto& size = value.preferredClusterDim;
      const int given = (size.x != 0) + (size.y != 0) + (size.z != 0);
      if (given != 0 && given != 3) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      launch->preferred_cluster[0] = size.x;
      launch->preferred_cluster[1] = size.y;
      launch->preferred_cluster[2] = size.z;
      return CUDA_SUCCESS;
    }
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value.clusterSchedulingPolicyPreference > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      launch->cluster_policy = static_cast<uint32_t>(value.clusterSchedulingPolicyPreference);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      if (value.programmaticStreamSerializationAllowed) launch->flags |= VGPU_LAUNCH_PROGRAMMATIC;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      if (!is_sync_domain(value.memSyncDomain)) return CUDA_ERROR_INVALID_VALUE;
      launch->sync_domain = static_cast<uint32_t>(value.memSyncDomain);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      launch->carveout = static_cast<int32_t>(value.sharedMemCarveout);
      launch->flags |= VGPU_LAUNCH_CARVEOUT;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return are_sync_domains(value.memSyncDomainMap) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return value.nvlinkUtilCentricScheduling <= 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      if (!value.deviceUpdatableKernelNode.deviceUpdatable) return CUDA_SUCCESS;
      log_unsupported("launch attribute DEVICE_UPDATABLE_KERNEL_NODE");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult after_launch(Call& call, uint64_t stream) {
  return launches_block() ? wait_for_launch(call, stream) : CUDA_SUCCESS;
}

CUresult pack_parameters(const FunctionRecord& function, void** parameters, void** extra, ParameterBuffer* buffer) {
  if (function.parameter_bytes > sizeof(buffer->bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) return read_extra(extra, function, buffer);
  if (function.parameters.empty()) return CUDA_SUCCESS;
  if (!parameters) return CUDA_ERROR_INVALID_VALUE;
  size_t end = 0;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const vgpu_parameter& parameter = function.parameters[i];
    if (uint64_t{parameter.offset} + parameter.bytes > function.parameter_bytes || parameter.offset < end) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;
    if (parameter.offset > end) std::memset(buffer->bytes + end, 0, parameter.offset - end);
    std::memcpy(buffer->bytes + parameter.offset, parameters[i], parameter.bytes);
    end = parameter.offset + parameter.bytes;
  }
  if (function.parameter_bytes > end) std::memset(buffer->bytes + end, 0, function.parameter_bytes - end);
  return CUDA_SUCCESS;
}

CUresult check_launch(FunctionRecord* function, const vgpu_launch& launch) {
  const int32_t* const limits = current_gpu().info.attributes;
  for (int i = 0; i < 3; ++i) {
    if (!launch.grid[i] || !launch.block[i]) return CUDA_ERROR_INVALID_VALUE;
    if (launch.grid[i] > static_cast<uint32_t>(limits[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]) ||
        launch.block[i] > static_cast<uint32_t>(limits[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads > static_cast<uint64_t>(limits[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > static_cast<uint64_t>(function->attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = check_cluster(launch, *function);
  if (result != CUDA_SUCCESS) return result;
  const int64_t dynamic = function->attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (int64_t{launch.shared_bytes} > dynamic) return CUDA_ERROR_INVALID_VALUE;
  return launch.flags & VGPU_LAUNCH_COOPERATIVE ? check_cooperative(launch, function) : CUDA_SUCCESS;
}

CUresult read_config(const CUlaunchConfig& config, const FunctionRecord& function, vgpu_launch* launch) {
  *launch = shape(function, {config.gridDimX, config.gridDimY, config.gridDimZ},
                  {config.blockDimX, config.blockDimY, config.blockDimZ}, config.sharedMemBytes);
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    EventAfter unused[kMaxEventsAfter];
    int count = 0;
    const CUresult result = read_attribute(config.attrs[i], launch, unused, &count);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  FunctionRecord* const record = find_function(function);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_launch launch = shape(*record, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes);
  return submit(call, record, &launch, stream, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void** parameters) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  FunctionRecord* const record = find_function(function);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_launch launch = shape(*record, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes);
  launch.flags = VGPU_LAUNCH_COOPERATIVE;
  return submit(call, record, &launch, stream, parameters, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  FunctionRecord* const record = find_function(function);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  vgpu_launch launch = shape(*record, {config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes);
  EventAfter events[kMaxEventsAfter];
  int event_count = 0;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult result = read_attribute(config->attrs[i], &launch, events, &event_count);
    if (result != CUDA_SUCCESS) return result;
  }
  CUresult result = submit(call, record, &launch, config->hStream, parameters, extra);
  for (int i = 0; i < event_count && result == CUDA_SUCCESS; ++i) {
    result = record_event(call, events[i].event, config->hStream, 0);
  }
  return result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  const CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  return put_host_function(call, on, reinterpret_cast<uint64_t>(function), data, VGPU_CALLBACK_HOST_FUNCTION);
}

// Whether the thread that runs host functions spins or sleeps between them is a matter of speed; here it sleeps.
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void* data, unsigned mode) {
  constexpr unsigned kSpins = 1;  // CU_HOST_TASK_SPINWAIT
  return mode > kSpins ? CUDA_ERROR_INVALID_VALUE : cuLaunchHostFunc(stream, function, data);
}

}  // extern "C"
