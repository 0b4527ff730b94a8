// Libraries, modules, kernels and their variables.
#include <algorithm>

#include "backend/device/cuda/code_bytes.h"
#include "backend/device/cuda/cuda_device.h"
#include "backend/device/cuda/launch_config.h"
#include "backend/device/cuda/load_request.h"
#include "backend/device/cuda/managed.h"
#include "backend/device/cuda/print_scan.h"

namespace bandsaw::cuda {
namespace {

// 90 for 9.0.
uint32_t compute_capability(const Driver& driver, CUdevice device) {
  int major = 0, minor = 0;
  driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  return static_cast<uint32_t>(major * 10 + minor);
}

}  // namespace

CUresult CudaDevice::library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) {
  if (const CUresult result = enter()) return result;
  std::shared_ptr<ManagedCode> managed;
  if (const CUresult result = ManagedCode::find(image, compute_capability(*driver_, device_), &managed, log)) {
    return result;
  }
  Charge charge(host_);
  const uint64_t bytes = code_bytes(image, compute_capability(*driver_, device_));
  if (const CUresult result = take_share(bytes, &charge)) return result;
  if (managed) {        // loaded as soon as its variables have their places
    may_print_ = true;  // it is PTX
    auto wrapped = std::make_shared<CudaLibrary>(driver_, nullptr, std::move(managed));
    wrapped->code_charge = std::move(charge);
    wrapped->managed_charge = Charge(host_);
    *library = std::move(wrapped);
    return CUDA_SUCCESS;
  }
  if (!may_print_) may_print_ = may_print(image);
  LoadRequest request(image);
  CUlibrary made = nullptr;
  const CUresult result = driver_->cuLibraryLoadData(&made, request.image(), request.options(), request.values(),
                                                     LoadRequest::kOptions, nullptr, nullptr, 0);
  *log = request.log();
  if (result != CUDA_SUCCESS) return check(result);
  auto wrapped = std::make_shared<CudaLibrary>(driver_, made);
  wrapped->code_charge = std::move(charge);
  *library = std::move(wrapped);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::library_unload(const LibraryRef& library) {
  if (const CUresult result = enter()) return result;
  return check(as(library).unload());
}

CUresult CudaDevice::library_kernel_names(const LibraryRef& library, std::vector<std::string>* names) {
  if (const CUresult result = enter()) return result;
  unsigned count = 0;
  CUresult result = driver_->cuLibraryGetKernelCount(&count, as(library).handle);
  std::vector<CUkernel> kernels(count);
  if (result == CUDA_SUCCESS && count) {
    result = driver_->cuLibraryEnumerateKernels(kernels.data(), count, as(library).handle);
  }
  for (size_t i = 0; i < kernels.size() && result == CUDA_SUCCESS; ++i) {
    const char* name = nullptr;
    result = driver_->cuKernelGetName(&name, kernels[i]);
    if (result == CUDA_SUCCESS) names->emplace_back(name);
  }
  return check(result);
}

template <typename GetInfo>
Parameters CudaDevice::parameters(GetInfo get_info) {
  Parameters list;
  size_t offset = 0, bytes = 0;
  while (get_info(list.size(), &offset, &bytes) == CUDA_SUCCESS) {
    list.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
  }
  return list;
}

void CudaDevice::remember(void* handle, const std::shared_ptr<Object>& object) {
  std::lock_guard lock(codes_mutex_);
  codes_[handle] = object;
}

CUresult CudaDevice::library_kernel(const LibraryRef& library, const std::string& name, KernelRef* kernel) {
  if (const CUresult result = enter()) return result;
  CudaLibrary& from = as(library);
  from.used = true;
  std::lock_guard lock(from.mutex);
  if ((*kernel = from.kernels[name].lock())) return CUDA_SUCCESS;
  auto made = std::make_shared<CudaKernel>();
  if (const CUresult result = driver_->cuLibraryGetKernel(&made->handle, from.handle, name.c_str())) {
    return check(result);
  }
  made->library = std::static_pointer_cast<CudaLibrary>(library);
  made->parameters = parameters([&](size_t index, size_t* offset, size_t* bytes) {
    return driver_->cuKernelGetParamInfo(made->handle, index, offset, bytes);
  });
  remember(made->handle, made);
  CUfunction function = nullptr;  // what a captured launch of it shows
  if (driver_->cuKernelGetFunction(&function, made->handle) == CUDA_SUCCESS) remember(function, made);
  from.kernels[name] = made;
  *kernel = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::library_global(const ContextRef& context, const LibraryRef& library, const std::string& name,
                                    uint64_t* address, uint64_t* bytes) {
  if (const CUresult result = enter(as(context))) return result;
  as(library).used = true;
  const CUresult result = check(find_variable(*library, name, address, bytes));
  if (result == CUDA_SUCCESS) found_variable(library, name, *address);
  return result;
}

CUresult CudaDevice::variable_around(const ContextRef& context, uint64_t address, uint64_t* base, uint64_t* bytes) {
  if (const CUresult result = enter(as(context))) return result;
  // The guest knows itself what it has in the window, and what the runner has for itself is host memory.
  CUmemorytype type{};
  if (address - config_.window_base < VGPU_WINDOW_BYTES ||
      driver_->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE) {
    return CUDA_ERROR_NOT_FOUND;
  }
  CUdeviceptr at = 0;
  size_t size = 0;
  const CUresult result = driver_->cuMemGetAddressRange(&at, &size, address);
  *base = at;
  *bytes = size;
  return result == CUDA_SUCCESS ? result : CUDA_ERROR_NOT_FOUND;
}

CUresult CudaDevice::library_managed(const LibraryRef& library, std::vector<ManagedVariable>* variables) {
  variables->clear();
  if (as(library).managed) *variables = as(library).managed->variables();
  return CUDA_SUCCESS;
}

CUresult CudaDevice::library_bind_managed(const LibraryRef& library, const std::string& name, uint64_t address,
                                          const std::shared_ptr<std::byte>& pages) {
  if (const CUresult result = enter()) return result;
  CudaLibrary& to = as(library);
  if (!to.managed) return CUDA_ERROR_NOT_FOUND;
  if (reinterpret_cast<uint64_t>(pages.get()) == address) {
    std::lock_guard lock(to.mutex);
    // All of them with the first: the library needs every one.
    uint64_t bytes = 0;
    for (const ManagedVariable& variable : to.managed->variables()) bytes += variable.bytes;
    if (to.managed_charge.bytes() == 0) {
      if (const CUresult result = take_share(bytes, &to.managed_charge)) return result;
    }
  }
  return check(to.managed->bind(*driver_, name, address, pages, &to.handle));
}

FunctionRef CudaDevice::make_function(CUfunction handle, const CudaContextRef& context, std::shared_ptr<Object> owner) {
  auto made = std::make_shared<CudaFunction>();
  made->handle = handle;
  made->context = context;
  made->owner = std::move(owner);
  made->parameters = parameters([&](size_t index, size_t* offset, size_t* bytes) {
    return driver_->cuFuncGetParamInfo(handle, index, offset, bytes);
  });
  remember(handle, made);
  return made;
}

CUresult CudaDevice::kernel_function(const ContextRef& context, const KernelRef& kernel, FunctionRef* function) {
  if (const CUresult result = enter(as(context))) return result;
  CUfunction handle = nullptr;
  if (const CUresult result = driver_->cuKernelGetFunction(&handle, as(kernel).handle)) return check(result);
  *function = make_function(handle, as(context), kernel);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::module_load(const ContextRef& context, std::span<const std::byte> image, ModuleRef* module,
                                 std::string* log) {
  if (const CUresult result = enter(as(context))) return result;
  if (!may_print_) may_print_ = may_print(image);
  Charge charge(host_);
  const uint64_t bytes = code_bytes(image, compute_capability(*driver_, device_));
  if (const CUresult result = take_share(bytes, &charge)) return result;
  LoadRequest request(image);
  CUmodule made = nullptr;
  const CUresult result =
      driver_->cuModuleLoadDataEx(&made, request.image(), LoadRequest::kOptions, request.options(), request.values());
  *log = request.log();
  if (result != CUDA_SUCCESS) return check(result);
  auto wrapped = std::make_shared<CudaModule>(driver_, made, as(context));
  wrapped->code_charge = std::move(charge);
  *module = std::move(wrapped);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::module_unload(const ModuleRef& module) { return check(as(module).unload()); }

CUresult CudaDevice::module_function_names(const ModuleRef& module, std::vector<std::string>* names) {
  if (const CUresult result = enter(as(module).context)) return result;
  unsigned count = 0;
  CUresult result = driver_->cuModuleGetFunctionCount(&count, as(module).handle);
  std::vector<CUfunction> functions(count);
  if (result == CUDA_SUCCESS && count) {
    result = driver_->cuModuleEnumerateFunctions(functions.data(), count, as(module).handle);
  }
  for (size_t i = 0; i < functions.size() && result == CUDA_SUCCESS; ++i) {
    const char* name = nullptr;
    result = driver_->cuFuncGetName(&name, functions[i]);
    if (result == CUDA_SUCCESS) names->emplace_back(name);
  }
  return check(result);
}

CUresult CudaDevice::module_function(const ModuleRef& module, const std::string& name, FunctionRef* function) {
  if (const CUresult result = enter(as(module).context)) return result;
  CUfunction handle = nullptr;
  as(module).used = true;
  if (const CUresult result = driver_->cuModuleGetFunction(&handle, as(module).handle, name.c_str())) {
    return check(result);
  }
  *function = make_function(handle, as(module).context, module);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::module_global(const ModuleRef& module, const std::string& name, uint64_t* address,
                                   uint64_t* bytes) {
  if (const CUresult result = enter(as(module).context)) return result;
  as(module).used = true;
  const CUresult result = check(find_variable(*module, name, address, bytes));
  if (result == CUDA_SUCCESS) found_variable(module, name, *address);
  return result;
}

// The driver takes a CUkernel wherever it takes a CUfunction of the current context.
CUfunction CudaDevice::code_handle(const Code& code) {
  return code.kernel ? reinterpret_cast<CUfunction>(as(code.kernel).handle) : as(code.function).handle;
}

const Parameters& CudaDevice::code_parameters(const Code& code) {
  return code.kernel ? as(code.kernel).parameters : as(code.function).parameters;
}

Code CudaDevice::code_of(CUfunction function, CUkernel kernel) {
  std::lock_guard lock(codes_mutex_);
  for (void* const handle : {static_cast<void*>(kernel), static_cast<void*>(function)}) {
    const auto found = handle ? codes_.find(handle) : codes_.end();
    if (found == codes_.end()) continue;
    const std::shared_ptr<Object> object = found->second.lock();
    if (auto as_kernel = std::dynamic_pointer_cast<Kernel>(object)) return {as_kernel, nullptr};
    if (auto as_function = std::dynamic_pointer_cast<Function>(object)) return {nullptr, as_function};
  }
  return {};
}

}  // namespace bandsaw::cuda
