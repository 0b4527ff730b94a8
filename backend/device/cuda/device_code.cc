// Libraries, modules, kernels and their variables.
#include <cstring>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr size_t kLogBytes = 16 * 1024;

// What the driver takes for relocatable code: the linked fatbin and those that it was linked from, up to a null
// pointer.
struct FatbinWrapper {
  uint32_t magic = 0x466243b1, version = 2;
  const void* linked = nullptr;
  const void* const* parts = nullptr;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t payload_bytes;
};
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// An image as the driver wants it, and the options that make it say what is wrong with it. The image has a NUL behind
// it, which ends PTX text; several fatbins one behind the other, at multiples of 8, become a wrapper.
class LoadRequest {
 public:
  explicit LoadRequest(std::span<const std::byte> image) : image_(image.begin(), image.end()), log_(kLogBytes, '\0') {
    image_.push_back(std::byte{0});
    find_parts();
  }
  const void* image() const { return parts_.size() > 1 ? static_cast<const void*>(&wrapper_) : image_.data(); }
  CUjit_option* options() { return options_; }
  void** values() { return values_; }
  static constexpr unsigned kOptions = 2;
  std::string log() const { return log_.c_str(); }

 private:
  void find_parts() {
    FatbinHeader header;
    for (size_t at = 0; at < image_.size() && image_.size() - at > sizeof header;) {
      std::memcpy(&header, image_.data() + at, sizeof header);
      const size_t left = image_.size() - at;
      if (header.magic != kFatbinMagic || header.payload_bytes > left || header.header_bytes > left) break;
      parts_.push_back(image_.data() + at);
      at = (at + header.header_bytes + header.payload_bytes + 7) / 8 * 8;
    }
    if (parts_.size() < 2) return;
    parts_.push_back(nullptr);
    wrapper_.linked = parts_[0];
    wrapper_.parts = parts_.data() + 1;
  }

  std::vector<std::byte> image_;
  std::vector<const void*> parts_;
  FatbinWrapper wrapper_;
  std::string log_;
  CUjit_option options_[kOptions] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values_[kOptions] = {log_.data(), reinterpret_cast<void*>(kLogBytes)};
};

}  // namespace

CUresult CudaDevice::library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) {
  if (const CUresult result = enter()) return result;
  LoadRequest request(image);
  CUlibrary made = nullptr;
  const CUresult result = driver_->cuLibraryLoadData(&made, request.image(), request.options(), request.values(),
                                                     LoadRequest::kOptions, nullptr, nullptr, 0);
  *log = request.log();
  if (result != CUDA_SUCCESS) return check(result);
  *library = std::make_shared<CudaLibrary>(driver_, made);
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
  CUdeviceptr at = 0;
  size_t size = 0;
  const CUresult result = driver_->cuLibraryGetGlobal(&at, &size, as(library).handle, name.c_str());
  *address = at;
  *bytes = size;
  return check(result);
}

// The driver allots managed variables where the guest cannot reach them; see the README.
CUresult CudaDevice::library_managed(const LibraryRef&, std::vector<ManagedVariable>* variables) {
  variables->clear();
  return CUDA_SUCCESS;
}

CUresult CudaDevice::library_bind_managed(const LibraryRef&, const std::string& name, uint64_t) {
  spdlog::error("managed variable {}: not supported on this device", name);
  return CUDA_ERROR_NOT_SUPPORTED;
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
  LoadRequest request(image);
  CUmodule made = nullptr;
  const CUresult result =
      driver_->cuModuleLoadDataEx(&made, request.image(), LoadRequest::kOptions, request.options(), request.values());
  *log = request.log();
  if (result != CUDA_SUCCESS) return check(result);
  *module = std::make_shared<CudaModule>(driver_, made, as(context));
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
  if (const CUresult result = driver_->cuModuleGetFunction(&handle, as(module).handle, name.c_str())) {
    return check(result);
  }
  *function = make_function(handle, as(module).context, module);
  return CUDA_SUCCESS;
}

CUresult CudaDevice::module_global(const ModuleRef& module, const std::string& name, uint64_t* address,
                                   uint64_t* bytes) {
  if (const CUresult result = enter(as(module).context)) return result;
  CUdeviceptr at = 0;
  size_t size = 0;
  const CUresult result = driver_->cuModuleGetGlobal(&at, &size, as(module).handle, name.c_str());
  *address = at;
  *bytes = size;
  return check(result);
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

CUresult CudaDevice::function_info(const Code& code, FunctionInfo* info) {
  if (const CUresult result = enter(code.function ? as(code.function).context : CudaContextRef())) return result;
  for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; ++i) {
    const auto attribute = static_cast<CUfunction_attribute>(i);
    int value = 0;
    const CUresult result = code.kernel
                                ? driver_->cuKernelGetAttribute(&value, attribute, as(code.kernel).handle, device_)
                                : driver_->cuFuncGetAttribute(&value, attribute, as(code.function).handle);
    if (result == CUDA_SUCCESS) info->info.attributes[i] = value;
    if (result != CUDA_SUCCESS && i == 0) return check(result);  // the first asks whether it can be loaded at all
  }
  info->parameters = code_parameters(code);
  uint32_t end = 0;
  for (const vgpu_parameter& parameter : info->parameters) end = std::max(end, parameter.offset + parameter.bytes);
  info->info.parameters = static_cast<uint32_t>(info->parameters.size());
  info->info.parameter_bytes = end;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::function_set_attribute(const Code& code, CUfunction_attribute attribute, int32_t value) {
  if (const CUresult result = enter(code.function ? as(code.function).context : CudaContextRef())) return result;
  return check(code.kernel ? driver_->cuKernelSetAttribute(attribute, value, as(code.kernel).handle, device_)
                           : driver_->cuFuncSetAttribute(as(code.function).handle, attribute, value));
}

CUresult CudaDevice::occupancy(const Code& code, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) {
  if (const CUresult result = enter(code.function ? as(code.function).context : CudaContextRef())) return result;
  int count = 0;
  const CUresult result = driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &count, code_handle(code), static_cast<int>(block_threads), shared_bytes);
  *blocks = static_cast<uint32_t>(count);
  return check(result);
}

}  // namespace bandsaw::cuda
