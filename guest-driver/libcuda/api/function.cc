#include "guest-driver/libcuda/api/function.h"

#include <cstring>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/library.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

using Table = HandleTable<FunctionRecord>;

struct FunctionTables {
  Table kernels, functions;
};

void forget_function_state(Context* context);

FunctionTables& function_tables() {
  static FunctionTables& all = *[] {
    on_context_ended(forget_function_state);
    return new FunctionTables;
  }();
  return all;
}

Table& table_of(uint64_t handle) {
  return wire::kind_of(handle) == wire::HandleKind::kKernel ? function_tables().kernels : function_tables().functions;
}

void forget_function_state(Context* context) {
  const uint64_t gone = context->handle;
  function_tables().functions.remove_if([gone](const FunctionRecord& function) { return function.context == gone; });
}

// Attributes that may be changed, with the range that CUDA takes.
bool settable(CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return value >= 0;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return value >= 0;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return true;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT && value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
    default:
      return false;
  }
}

CUresult set_attribute(Call& call, FunctionRecord* function, CUfunction_attribute attribute, int value) {
  if (call.failed()) return call.status();
  if (!function) return call.failed() ? call.status() : CUDA_ERROR_INVALID_HANDLE;
  if (!call.route(function->handle)) return call.status();
  if (!settable(attribute, value)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) value = value != 0;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int32_t limit = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, call.gpu().ordinal);
    if (value > limit - function->attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)) return CUDA_ERROR_INVALID_VALUE;
  }
  {
    // Libraries set the same value again before every launch.
    std::lock_guard lock(function->mutex);
    bool same = function->attribute(attribute) == value;
    for (const auto& [context, handle] : function->functions) {
      const FunctionRecord* const derived = find_function(handle);
      same = same && (!derived || derived->attribute(attribute) == value);
    }
    if (same) return CUDA_SUCCESS;
  }
  const CUresult result = wire::function_set_attribute(call, function->handle, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  function->attributes[attribute].store(value, std::memory_order_relaxed);
  std::lock_guard lock(function->mutex);
  function->occupancies.clear();
  function->cluster_answers.clear();
  for (const auto& [context, handle] : function->functions) {
    FunctionRecord* const derived = find_function(handle);
    if (!derived) continue;
    derived->attributes[attribute].store(value, std::memory_order_relaxed);
    std::lock_guard derived_lock(derived->mutex);
    derived->occupancies.clear();
  }
  return CUDA_SUCCESS;
}

CUresult get_attribute(int* value, CUfunction_attribute attribute, const FunctionRecord* function) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *value = function->attribute(attribute);
  return CUDA_SUCCESS;
}

CUresult get_parameter(const FunctionRecord* function, size_t index, size_t* offset, size_t* bytes) {
  Call call;
  if (!call.require_context()) return call.status();  // as in NVIDIA's driver, also for kernels
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->parameters[index].offset;
  if (bytes) *bytes = function->parameters[index].bytes;
  return CUDA_SUCCESS;
}

CUresult count_parameters(const FunctionRecord* function, size_t* count) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *count = function->parameters.size();
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult get_name(const char** name, Handle handle) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!name || !handle) return CUDA_ERROR_INVALID_VALUE;
  const FunctionRecord* const function = find_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

// Cache preferences are hints that neither device needs.
CUresult check_cache_config(const FunctionRecord* function, CUfunc_cache config) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  return is_configuration(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

FunctionRecord* find_function(uint64_t handle) { return table_of(handle).find(handle); }

FunctionRecord* add_function(uint64_t handle, uint64_t owner, uint64_t kernel, uint64_t context, std::string name,
                             const vgpu_function_info& info, const std::vector<std::byte>& parameters) {
  auto record = std::make_unique<FunctionRecord>();
  record->handle = handle;
  record->owner = owner;
  record->kernel = kernel;
  record->context = context;
  record->name = std::move(name);
  record->parameter_bytes = info.parameter_bytes;
  record->parameters.resize(parameters.size() / sizeof(vgpu_parameter));
  if (!record->parameters.empty()) {
    std::memcpy(record->parameters.data(), parameters.data(), record->parameters.size() * sizeof(vgpu_parameter));
  }
  for (int i = 0; i < kFunctionAttributes; ++i) record->attributes[i] = info.attributes[i];
  return table_of(handle).insert(std::move(record));
}

void forget_functions_of(uint64_t owner) {
  const auto gone = [owner](const FunctionRecord& function) { return function.owner == owner; };
  function_tables().kernels.remove_if(gone);
  function_tables().functions.remove_if(gone);
}

CUresult kernel_on_device(Call& call, FunctionRecord* function, FunctionRecord** there) {
  if (call.failed()) return call.status();
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *there = function;
  if (call.is_here(function->handle)) return CUDA_SUCCESS;
  if (wire::kind_of(function->handle) != wire::HandleKind::kKernel) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(function->mutex);
  uint64_t& known = function->elsewhere[call.gpu().part];
  if (known && (*there = find_function(known))) return CUDA_SUCCESS;
  CodeRecord* const library = find_library(function->owner);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = library_kernel_on_device(call, library, function->name.c_str(), &known);
  if (result == CUDA_SUCCESS) *there = find_function(known);
  return result == CUDA_SUCCESS && !*there ? CUDA_ERROR_UNKNOWN : result;
}

CUresult function_in_context(uint64_t handle, uint64_t* function) {
  FunctionRecord* record = find_function(handle);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  if (wire::kind_of(handle) != wire::HandleKind::kKernel) {
    *function = handle;
    return CUDA_SUCCESS;
  }
  Call call;
  if (!call.require_context()) return call.status();
  FunctionRecord* there = nullptr;
  if (const CUresult found = kernel_on_device(call, record, &there); found != CUDA_SUCCESS) return found;
  record = there;
  std::lock_guard lock(record->mutex);
  if (const auto known = record->functions.find(call.context()); known != record->functions.end()) {
    if (find_function(known->second)) {
      *function = known->second;
      return CUDA_SUCCESS;
    }
    record->functions.erase(known);
  }
  vgpu_function_info info{};
  std::vector<std::byte> parameters;
  const CUresult result = wire::kernel_function(call, record->handle, function, &info, &parameters);
  if (result != CUDA_SUCCESS) return result;
  if (!add_function(*function, record->owner, record->handle, call.context(), record->name, info, parameters)) {
    return CUDA_ERROR_UNKNOWN;
  }
  record->functions.emplace(call.context(), *function);
  return CUDA_SUCCESS;
}

CUresult occupancy_of(FunctionRecord* function, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) {
  const std::tuple key{block_threads, shared_bytes};
  std::lock_guard lock(function->mutex);
  if (const auto known = function->occupancies.find(key); known != function->occupancies.end()) {
    *blocks = known->second;
    return CUDA_SUCCESS;
  }
  Call call;
  if (!call.route(function->handle)) return call.status();
  const CUresult result = wire::occupancy(call, function->handle, block_threads, shared_bytes, blocks);
  if (result == CUDA_SUCCESS) function->occupancies.emplace(key, *blocks);
  return result;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return get_attribute(value, attribute, find_function(function));
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  Call call(gpu_at(device));
  FunctionRecord* there = nullptr;
  const CUresult result = kernel_on_device(call, find_function(kernel), &there);
  return result != CUDA_SUCCESS ? result : get_attribute(value, attribute, there);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  Call call;
  return set_attribute(call, find_function(function), attribute, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  Call call(gpu_at(device));
  FunctionRecord* there = nullptr;
  const CUresult result = kernel_on_device(call, find_function(kernel), &there);
  return result != CUDA_SUCCESS ? result : set_attribute(call, there, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  return check_cache_config(find_function(function), config);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : check_cache_config(find_function(kernel), config);
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!find_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  return is_configuration(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetName(const char** name, CUfunction function) { return get_name(name, function); }

CUresult cuKernelGetName(const char** name, CUkernel kernel) { return get_name(name, kernel); }

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return get_parameter(find_function(function), index, offset, bytes);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return get_parameter(find_function(kernel), index, offset, bytes);
}

CUresult cuFuncGetParamCount(CUfunction function, size_t* count) {
  return count_parameters(find_function(function), count);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t* count) {
  return count_parameters(find_function(kernel), count);
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = function_in_context(to_wire(kernel), &handle);
  if (result == CUDA_SUCCESS) *function = from_wire<CUfunction>(handle);
  return result;
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!library) return CUDA_ERROR_INVALID_VALUE;
  const FunctionRecord* const record = find_function(kernel);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  *library = from_wire<CUlibrary>(record->owner);
  return CUDA_SUCCESS;
}

// A library's handle serves as its module in every context (module.cc).
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  const FunctionRecord* const record = find_function(function);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  *module = from_wire<CUmodule>(record->owner);
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* loading, CUfunction function) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!loading) return CUDA_ERROR_INVALID_VALUE;
  if (!find_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  *loading = CU_FUNCTION_LOADING_STATE_LOADED;  // the host compiles when the handle is made
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  return find_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // extern "C"
