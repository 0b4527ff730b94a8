// Libraries, modules, their kernels and variables.
#include <algorithm>

#include "backend/device/given.h"
#include "backend/device/soft/fault.h"
#include "backend/device/soft/soft_device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

Image& image_of(const LibraryRef& library) { return *static_cast<SoftLibrary&>(*library).image; }

CUresult global_of(const LoadedImage& loaded, const std::string& name, uint64_t* address, uint64_t* bytes) {
  return loaded.variable(name, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CompileOptions SoftDevice::compile_options() {
  return {.window_base = config_.window_base,
          .cache_directory = config_.cache_directory,
          .keeper = config_.keeper,
          .generates = [this] { compiler_.generates(); },
          .record = recorder_ != nullptr};
}

CUresult SoftDevice::library_load(std::span<const std::byte> image, LibraryRef* library, std::string* log) {
  if (const CUresult error = scheduler_.error()) return error;
  std::shared_ptr<Image> compiled;
  const CompileOptions options = compile_options();
  if (const CUresult result = read_image(image, options, &compiled, log)) return result;
  *library = std::make_shared<SoftLibrary>(std::move(compiled));
  return CUDA_SUCCESS;
}

// Running launches hold the code they run; variables go when the last of them has ended.
CUresult SoftDevice::library_unload(const LibraryRef& library) {
  for (const SoftContextRef& context : contexts()) {
    std::lock_guard lock(context->code_mutex);
    const auto found = context->images.find(&image_of(library));
    if (found == context->images.end()) continue;
    found->second->retire();
    context->images.erase(found);
  }
  return scheduler_.error();
}

CUresult SoftDevice::library_kernel_names(const LibraryRef& library, std::vector<std::string>* names) {
  *names = image_of(library).kernel_names();
  return scheduler_.error();
}

CUresult SoftDevice::library_kernel(const LibraryRef& library, const std::string& name, KernelRef* kernel) {
  if (const CUresult error = scheduler_.error()) return error;
  auto made = std::make_shared<SoftKernel>();
  made->image = static_cast<SoftLibrary&>(*library).image;
  if (const CUresult result = made->image->kernel(name, &made->code)) return result;
  *kernel = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::library_global(const ContextRef& context, const LibraryRef& library, const std::string& name,
                                    uint64_t* address, uint64_t* bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  std::shared_ptr<LoadedImage> loaded;
  std::string log;
  const auto load = [&] {
    return load_image(static_cast<SoftLibrary&>(*library).image, *as(context), memory_, &loaded, &log);
  };
  if (const CUresult result = with_room(load)) return result;
  return global_of(*loaded, name, address, bytes);
}

CUresult SoftDevice::variable_around(const ContextRef& context, uint64_t address, uint64_t* base, uint64_t* bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  SoftContext& of = *as(context);
  std::lock_guard lock(of.code_mutex);
  const bool in_library = std::ranges::any_of(
      of.images, [&](const auto& image) { return image.second->variable_around(address, base, bytes); });
  const bool found = in_library || std::ranges::any_of(of.module_images, [&](const auto& each) {
                       const std::shared_ptr<LoadedImage> image = each.lock();
                       return image && image->variable_around(address, base, bytes);
                     });
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult SoftDevice::library_managed(const LibraryRef& library, std::vector<ManagedVariable>* variables) {
  if (const CUresult error = scheduler_.error()) return error;
  variables->clear();
  for (const Variable& variable : image_of(library).program().variables()) {
    if (variable.managed) variables->push_back({variable.name, variable.bytes});
  }
  return CUDA_SUCCESS;
}

CUresult SoftDevice::library_bind_managed(const LibraryRef& library, const std::string& name, uint64_t address,
                                          const std::shared_ptr<std::byte>& pages) {
  if (const CUresult error = scheduler_.error()) return error;
  Image& image = image_of(library);
  for (const Variable& variable : image.program().variables()) {
    if (variable.name != name || !variable.managed) continue;
    const uint64_t offset = address - config_.window_base;
    if (offset >= VGPU_WINDOW_BYTES || variable.bytes > VGPU_WINDOW_BYTES - offset) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(image.managed_mutex);
    if (image.managed_ready.contains(name)) return CUDA_ERROR_INVALID_VALUE;  // in use at its first address
    const Given* const given = Given::current();
    const bool again = given && given->again();  // it has its value, wherever that is
    // Programs read and write the variable before any context loads the library, so its value stands there from now on.
    for (const Variable::Piece& piece : variable.initial) {
      if (again) break;
      if (!fits(piece, variable) || !copy_guarded(pages.get() + piece.offset, piece.bytes.data(), piece.bytes.size())) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    const bool moves = again ? offset >= VGPU_WINDOW_DEVICE_OFFSET : reinterpret_cast<uint64_t>(pages.get()) != address;
    if (!image.managed.contains(name) && !moves) {
      if (!image.managed_share.bytes()) image.managed_share = memory_->new_charge();
      if (!image.managed_share.resize(image.managed_share.bytes() + variable.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    image.managed[name] = address;
    if (!variable.pointers.empty() && !again) {
      std::lock_guard pointing(pointing_mutex_);
      pointing_.emplace_back(static_cast<SoftLibrary&>(*library).image, name);
    }
    if (again) {
      image.managed_ready.insert(name);
    } else {
      image.managed_pages[name] = pages;
    }
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult SoftDevice::kernel_function(const ContextRef& context, const KernelRef& kernel, FunctionRef* function) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto& of = static_cast<SoftKernel&>(*kernel);
  auto made = std::make_shared<SoftFunction>();
  std::string log;
  const auto load = [&] { return load_image(of.image, *as(context), memory_, &made->loaded, &log); };
  if (const CUresult result = with_room(load)) return result;
  made->image = of.image;
  made->code = of.code;
  made->context = as(context);
  *function = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::module_load(const ContextRef& context, std::span<const std::byte> image, ModuleRef* module,
                                 std::string* log) {
  if (const CUresult error = scheduler_.error()) return error;
  auto made = std::make_shared<SoftModule>();
  const CompileOptions options = compile_options();
  if (const CUresult result = read_image(image, options, &made->image, log)) return result;
  const auto load = [&] { return LoadedImage::make(made->image, memory_, &made->loaded, log); };
  if (const CUresult result = with_room(load)) return result;
  made->context = as(context);
  {
    std::lock_guard lock(as(context)->code_mutex);
    as(context)->module_images.push_back(made->loaded);
  }
  *module = std::move(made);
  return CUDA_SUCCESS;
}

// The runner drops the module and its functions; running launches hold what they use.
CUresult SoftDevice::module_unload(const ModuleRef& module) {
  auto& going = static_cast<SoftModule&>(*module);
  if (!going.loaded) return CUDA_ERROR_INVALID_HANDLE;
  if (const std::shared_ptr<SoftContext> context = going.context.lock()) {
    std::lock_guard lock(context->code_mutex);
    std::erase_if(context->module_images, [&](const auto& each) { return each.lock() == going.loaded; });
  }
  going.loaded->retire();
  going.loaded.reset();
  return scheduler_.error();
}

CUresult SoftDevice::module_function_names(const ModuleRef& module, std::vector<std::string>* names) {
  *names = static_cast<SoftModule&>(*module).image->kernel_names();
  return scheduler_.error();
}

CUresult SoftDevice::module_function(const ModuleRef& module, const std::string& name, FunctionRef* function) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto& of = static_cast<SoftModule&>(*module);
  auto made = std::make_shared<SoftFunction>();
  made->image = of.image;
  made->loaded = of.loaded;
  made->context = of.context;
  if (const CUresult result = of.image->kernel(name, &made->code)) return result;
  if (!made->loaded) return CUDA_ERROR_INVALID_HANDLE;
  *function = std::move(made);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::module_global(const ModuleRef& module, const std::string& name, uint64_t* address,
                                   uint64_t* bytes) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto& of = static_cast<SoftModule&>(*module);
  return of.loaded ? global_of(*of.loaded, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

// A launch tells what is wrong with its code.
bool SoftDevice::is_compiled(const ContextRef& context, const Code& code) {
  CodeView of = view(code);
  if (!of.code || scheduler_.error() != CUDA_SUCCESS) return true;
  if (!of.loaded) {
    std::string log;
    const auto load = [&] { return load_image(of.image, *as(context), memory_, &of.loaded, &log); };
    if (with_room(load) != CUDA_SUCCESS) return true;
  }
  return of.loaded->is_compiled(of.code->name, compiler_);
}

}  // namespace bandsaw::soft
