#include <cstring>

#include "backend/device/given.h"
#include "backend/runner/handlers/handlers.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;

constexpr uint64_t kImageMax = 512ull << 20;
constexpr size_t kLogMax = 16 * 1024;

void append(std::string* out, const void* data, size_t bytes) { out->append(static_cast<const char*>(data), bytes); }

constexpr size_t kNamesMax = VGPU_RING_REPLY_BYTES - sizeof(wire::ModuleFunctionsReply);
static_assert(sizeof(wire::LibraryKernelsReply) == sizeof(wire::ModuleFunctionsReply));

// From the `first` one on, those that fit into a reply.
CUresult list_names(const std::vector<std::string>& names, uint32_t first, uint32_t* count, std::string* out) {
  for (size_t i = first; i < names.size() && out->size() + names[i].size() + 1 <= kNamesMax; ++i) {
    append(out, names[i].c_str(), names[i].size() + 1);
  }
  *count = static_cast<uint32_t>(names.size());
  return CUDA_SUCCESS;
}

// The call has read this code.
void note_code(std::vector<std::byte> bytes) {
  Given* const given = Given::current();
  if (given && !given->again()) given->set_code(std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
}

}  // namespace

Code find_code(Objects& objects, uint64_t handle) {
  switch (wire::kind_of(handle)) {
    case HandleKind::kKernel:
      return {std::static_pointer_cast<Kernel>(objects.find(HandleKind::kKernel, handle)), nullptr};
    case HandleKind::kFunction:
      return {nullptr, std::static_pointer_cast<Function>(objects.find(HandleKind::kFunction, handle))};
    default:
      return {};
  }
}

// Into private memory before anything of it is looked at: the guest may go on writing.
CUresult Handlers::copy_image(uint64_t image, uint64_t size, std::vector<std::byte>* bytes, std::string* log) {
  if (size == 0 || size > kImageMax) {
    *log = fmt::format("an image of {} bytes; 1 to {} are possible", size, kImageMax);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const GuestSpan span = world_.memory.find(image, size, Access::kRead);
  if (!span) return CUDA_ERROR_INVALID_VALUE;
  bytes->assign(span.data, span.data + size);
  return CUDA_SUCCESS;
}

CUresult Handlers::copy_code(uint64_t image, uint64_t size, std::vector<std::byte>* bytes, std::string* log) {
  if (const Given* const given = Given::current(); given && given->again()) {
    if (!given->code()) return CUDA_ERROR_INVALID_VALUE;
    *bytes = *given->code();
    return CUDA_SUCCESS;
  }
  CUresult result = copy_image(image, size, bytes, log);
  if (result == CUDA_SUCCESS && world_.guard) result = world_.guard->rewrite(bytes, log);
  if (result != CUDA_SUCCESS && world_.guard) log::info("guard: {}", log->substr(0, kLogMax));
  return result;
}

CUresult Handlers::library_load(C, uint64_t image, uint64_t size, uint64_t* library, std::string* log) {
  std::vector<std::byte> bytes;
  CUresult result = copy_code(image, size, &bytes, log);
  if (result != CUDA_SUCCESS) return result;
  LibraryRef loaded;
  result = device_.library_load(bytes, &loaded, log);
  if (log->size() > kLogMax) log->resize(kLogMax);
  if (result != CUDA_SUCCESS) log::info("library_load: error {}: {}", static_cast<int>(result), *log);
  if (result == CUDA_SUCCESS) world_.slicer.kernels().library_loaded(loaded, bytes);
  note_code(std::move(bytes));
  return result == CUDA_SUCCESS ? give(HandleKind::kLibrary, std::move(loaded), 0, library) : result;
}

CUresult Handlers::library_unload(C, R<Library> library) {
  if (!table().remove(HandleKind::kLibrary, library.handle)) return CUDA_ERROR_INVALID_HANDLE;
  world_.slicer.kernels().forget_image(library.object.get());
  if (world_.guard) world_.guard->forget(library.object.get());
  return device_.library_unload(library);
}

CUresult Handlers::library_kernels(C, R<Library> library, uint32_t first, uint32_t* count, std::string* names) {
  std::vector<std::string> list;
  const CUresult result = device_.library_kernel_names(library, &list);
  return result == CUDA_SUCCESS ? list_names(list, first, count, names) : result;
}

CUresult Handlers::give_code(HandleKind kind, const Code& code, uint64_t owner, uint64_t* handle,
                             vgpu_function_info* info, std::string* parameters) {
  FunctionInfo described;
  const CUresult result = device_.function_info(code, &described);
  if (result != CUDA_SUCCESS) return result;
  *info = described.info;
  info->parameters = static_cast<uint32_t>(described.parameters.size());
  append(parameters, described.parameters.data(), described.parameters.size() * sizeof(vgpu_parameter));
  ObjectRef object = code.kernel ? ObjectRef(code.kernel) : ObjectRef(code.function);
  return give(kind, std::move(object), owner, handle, true);
}

CUresult Handlers::library_kernel(C, R<Library> library, std::string_view name, uint64_t* kernel,
                                  vgpu_function_info* info, std::string* parameters) {
  Code code;
  const CUresult result = device_.library_kernel(library, std::string(name), &code.kernel);
  if (result != CUDA_SUCCESS) return result;
  world_.slicer.kernels().kernel_found(library, std::string(name), code.kernel);
  return give_code(HandleKind::kKernel, code, library.handle, kernel, info, parameters);
}

CUresult Handlers::library_global(C call, R<Library> library, std::string_view name, uint64_t* address,
                                  uint64_t* size) {
  const CUresult result = device_.library_global(call.context, library, std::string(name), address, size);
  if (result == CUDA_SUCCESS && world_.guard) world_.guard->allow_variable(library.object.get(), *address, *size);
  return result;
}

CUresult Handlers::variable_around(C call, uint64_t at, uint64_t* address, uint64_t* size) {
  return device_.variable_around(call.context, at, address, size);
}

CUresult Handlers::library_managed(C, R<Library> library, uint32_t* count, std::string* variables) {
  std::vector<ManagedVariable> list;
  const CUresult result = device_.library_managed(library, &list);
  if (result != CUDA_SUCCESS) return result;
  for (const ManagedVariable& variable : list) {
    const uint64_t bytes = variable.bytes;
    const auto name_bytes = static_cast<uint32_t>(variable.name.size());
    append(variables, &bytes, sizeof(bytes));
    append(variables, &name_bytes, sizeof(name_bytes));
    *variables += variable.name;
  }
  *count = static_cast<uint32_t>(list.size());
  return CUDA_SUCCESS;
}

CUresult Handlers::library_bind_managed(C, R<Library> library, uint64_t address, std::string_view name) {
  // The device writes the initial value there; how long the variable is, only it knows.
  std::vector<ManagedVariable> list;
  const CUresult result = device_.library_managed(library, &list);
  if (result != CUDA_SUCCESS) return result;
  for (const ManagedVariable& variable : list) {
    if (variable.name != name) continue;
    if (const Given* const given = Given::current(); given && given->again()) {
      const CUresult bound = device_.library_bind_managed(library, variable.name, address, nullptr);
      if (bound == CUDA_SUCCESS) world_.slicer.kernels().managed_bound(library, variable.name, address);
      return bound;
    }
    const GuestSpan span = world_.memory.find(address, variable.bytes, Access::kWrite);
    if (!span || !world_.memory.window().contains(address, variable.bytes)) return CUDA_ERROR_INVALID_VALUE;
    // Pages that kernels do not use in place lie behind addresses of the device: there the variable moves.
    const uint64_t offset = address - world_.memory.window().base();
    if (!span.region->device_visible() && offset < VGPU_WINDOW_DEVICE_OFFSET) return CUDA_ERROR_INVALID_VALUE;
    const std::shared_ptr<std::byte> pages(span.region, span.data);
    const CUresult bound = device_.library_bind_managed(library, variable.name, address, pages);
    if (bound == CUDA_SUCCESS) world_.slicer.kernels().managed_bound(library, variable.name, address);
    return bound;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult Handlers::kernel_function(C call, R<Kernel> kernel, uint64_t* function, vgpu_function_info* info,
                                   std::string* parameters) {
  Code code;
  const CUresult result = device_.kernel_function(call.context, kernel, &code.function);
  if (result != CUDA_SUCCESS) return result;
  world_.slicer.kernels().function_of_kernel(kernel, code.function);
  return give_code(HandleKind::kFunction, code, call.context.handle, function, info, parameters);
}

CUresult Handlers::module_load(C call, uint64_t image, uint64_t size, uint64_t* module, std::string* log) {
  std::vector<std::byte> bytes;
  CUresult result = copy_code(image, size, &bytes, log);
  if (result != CUDA_SUCCESS) return result;
  ModuleRef loaded;
  result = device_.module_load(call.context, bytes, &loaded, log);
  if (log->size() > kLogMax) log->resize(kLogMax);
  if (result != CUDA_SUCCESS) log::info("module_load: error {}: {}", static_cast<int>(result), *log);
  if (result == CUDA_SUCCESS) world_.slicer.kernels().module_loaded(loaded, bytes);
  note_code(std::move(bytes));
  return result == CUDA_SUCCESS ? give(HandleKind::kModule, std::move(loaded), call.context.handle, module) : result;
}

CUresult Handlers::module_unload(C, R<Module> module) {
  if (!table().remove(HandleKind::kModule, module.handle)) return CUDA_ERROR_INVALID_HANDLE;
  world_.slicer.kernels().forget_image(module.object.get());
  if (world_.guard) world_.guard->forget(module.object.get());
  return device_.module_unload(module);
}

CUresult Handlers::module_function(C, R<Module> module, std::string_view name, uint64_t* function,
                                   vgpu_function_info* info, std::string* parameters) {
  Code code;
  const CUresult result = device_.module_function(module, std::string(name), &code.function);
  if (result != CUDA_SUCCESS) return result;
  world_.slicer.kernels().function_found(module, std::string(name), code.function);
  return give_code(HandleKind::kFunction, code, module.handle, function, info, parameters);
}

CUresult Handlers::module_functions(C, R<Module> module, uint32_t first, uint32_t* count, std::string* names) {
  std::vector<std::string> list;
  const CUresult result = device_.module_function_names(module, &list);
  return result == CUDA_SUCCESS ? list_names(list, first, count, names) : result;
}

CUresult Handlers::module_global(C, R<Module> module, std::string_view name, uint64_t* address, uint64_t* size) {
  const CUresult result = device_.module_global(module, std::string(name), address, size);
  if (result == CUDA_SUCCESS && world_.guard) world_.guard->allow_variable(module.object.get(), *address, *size);
  return result;
}

CUresult Handlers::function_set_attribute(C, uint64_t function, uint32_t attribute, int32_t value) {
  const Code code = find_code(world_.objects, function);
  if (!code.kernel && !code.function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = device_.function_set_attribute(code, static_cast<CUfunction_attribute>(attribute), value);
  if (result == CUDA_SUCCESS) world_.slicer.kernels().attribute_set(code);
  return result;
}

CUresult Handlers::occupancy(C, uint64_t function, uint32_t block_threads, uint64_t shared_bytes, uint32_t* blocks) {
  const Code code = find_code(world_.objects, function);
  if (!code.kernel && !code.function) return CUDA_ERROR_INVALID_HANDLE;
  if (block_threads == 0) return CUDA_ERROR_INVALID_VALUE;
  return device_.occupancy(code, block_threads, shared_bytes, blocks);
}

CUresult Handlers::occupancy_clusters(C call, const vgpu_launch& launch, uint32_t* clusters, uint32_t* largest) {
  Launch shape;
  shape.code = find_code(world_.objects, launch.function);
  if (launch.function && !shape.code.kernel && !shape.code.function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = read_launch(launch, &shape)) return result;
  return device_.occupancy_clusters(call.context, shape, clusters, largest);
}

CUresult Handlers::tensor_map_encode(C, const vgpu_tensor_shape& shape, vgpu_tensor_map* map) {
  return device_.tensor_map_encode(shape, map);
}

CUresult Handlers::tensor_map_move(C, const vgpu_tensor_map& old, uint64_t address, vgpu_tensor_map* map) {
  return device_.tensor_map_move(old, address, map);
}

}  // namespace bandsaw::runner
