// Modules: code loaded into one context. A library's handle is accepted wherever a module is, because
// cuLibraryGetModule and cuFuncGetModule give it out as the library's module.
#include <chrono>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/library.h"
#include "guest-driver/libcuda/api/texture.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/export_tables.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// A library that stands for its module: the program places its __managed__ variables.
CUresult load_with_managed(uint64_t context, const Image& image, JitOptions* jit, CUmodule* module) {
  CodeRecord* library = nullptr;
  const CUresult result = load_library(image, jit, context, &library);
  if (result == CUDA_SUCCESS) *module = from_wire<CUmodule>(library->handle);
  return result;
}

CUresult load(CUmodule* module, const void* code, unsigned jit_count, CUjit_option* jit_options, void** jit_values) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  Image image;
  CUresult result = find_image(code, &image);
  if (result != CUDA_SUCCESS) return result;
  JitOptions jit;
  result = jit.read(jit_count, jit_options, jit_values);
  if (result != CUDA_SUCCESS) return result;
  SharedImage shared;
  result = shared.fill(call, image);
  if (result != CUDA_SUCCESS) return result;
  std::string log;
  uint64_t handle = 0;
  const auto start = std::chrono::steady_clock::now();
  result = wire::module_load(call, shared.address(), shared.bytes(), &handle, &log);
  const std::chrono::duration<float, std::milli> time = std::chrono::steady_clock::now() - start;
  jit.report(result, log, time.count());
  if (result == CUDA_ERROR_NOT_SUPPORTED) return load_with_managed(call.context(), image, &jit, module);
  if (result != CUDA_SUCCESS) return result;
  if (!add_module(handle, call.context())) return CUDA_ERROR_UNKNOWN;
  *module = from_wire<CUmodule>(handle);
  return CUDA_SUCCESS;
}

CUresult module_function(CodeRecord* module, const char* name, uint64_t* function) {
  std::lock_guard lock(module->mutex);
  if (const auto known = module->functions.find(std::string_view(name)); known != module->functions.end()) {
    *function = known->second;
    return CUDA_SUCCESS;
  }
  Call call;
  vgpu_function_info info{};
  std::vector<std::byte> parameters;
  const CUresult result = wire::module_function(call, module->handle, name, function, &info, &parameters);
  if (result != CUDA_SUCCESS) return result;
  if (!add_function(*function, module->handle, 0, module->context, name, info, parameters)) return CUDA_ERROR_UNKNOWN;
  module->functions.emplace(name, *function);
  return CUDA_SUCCESS;
}

// Of a module, or of a library that stands for its module.
CUresult function_of(uint64_t code, const char* name, uint64_t* function) {
  if (CodeRecord* const module = find_module(code)) return module_function(module, name, function);
  CodeRecord* const library = find_library(code);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t kernel = 0;
  const CUresult result = library_kernel(library, name, &kernel);
  return result != CUDA_SUCCESS ? result : function_in_context(kernel, function);
}

CUresult function_names(uint64_t code, std::vector<std::string>* names) {
  if (CodeRecord* const library = find_library(code)) return library_kernel_names(library, names);
  if (!find_module(code)) return CUDA_ERROR_INVALID_HANDLE;
  Call call;
  return list_names(
      [&](uint32_t first, uint32_t* count, std::vector<std::byte>* bytes) {
        return wire::module_functions(call, code, first, count, bytes);
      },
      names);
}

CUresult global_of(uint64_t code, const char* name, CUdeviceptr* address, size_t* bytes) {
  if (CodeRecord* const library = find_library(code)) return library_variable(library, name, address, bytes);
  CodeRecord* const module = find_module(code);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  Call call;
  uint64_t base = 0, size = 0;
  const CUresult result = wire::module_global(call, code, name, &base, &size);
  if (result != CUDA_SUCCESS) return result;
  add_global(base, size, code, module->context);
  if (address) *address = base;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_managed_module(CUmodule* module, const void* code) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  Image image;
  const CUresult result = find_image(code, &image);
  JitOptions jit;
  return result == CUDA_SUCCESS ? load_with_managed(call.context(), image, &jit, module) : result;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return explain(load(module, image, 0, nullptr, nullptr), image, __builtin_return_address(0));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  return explain(load(module, image, count, options, values), image, __builtin_return_address(0));
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatbin) {
  return explain(load(module, fatbin, 0, nullptr, nullptr), fatbin, __builtin_return_address(0));
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!module || !path || !*path) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> bytes;
  const CUresult result = read_file(path, &bytes);
  return result != CUDA_SUCCESS ? result : load(module, bytes.data(), 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule module) {
  Call call;
  if (call.failed()) return call.status();
  if (CodeRecord* const library = find_library(to_wire(module))) {
    return library->context ? unload_library(library) : CUDA_ERROR_NOT_PERMITTED;
  }
  if (!find_module(to_wire(module))) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = wire::module_unload(call, to_wire(module));
  if (result == CUDA_SUCCESS) {
    forget_references(to_wire(module));
    forget_module(to_wire(module));
  }
  return result;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = 0;
  const CUresult result = function_of(to_wire(module), name, &handle);
  if (result == CUDA_SUCCESS) *function = from_wire<CUfunction>(handle);
  return result;
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  const CUresult result = function_names(to_wire(module), &names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned>(names.size());
  return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule module) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!functions) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::string> names;
  CUresult result = function_names(to_wire(module), &names);
  for (unsigned i = 0; i < count && i < names.size() && result == CUDA_SUCCESS; ++i) {
    uint64_t handle = 0;
    result = function_of(to_wire(module), names[i].c_str(), &handle);
    functions[i] = from_wire<CUfunction>(handle);
  }
  return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  return global_of(to_wire(module), name, address, bytes);
}

}  // extern "C"
