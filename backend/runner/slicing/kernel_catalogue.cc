#include "backend/runner/slicing/kernel_catalogue.h"

#include <iterator>
#include <utility>
#include <vector>

namespace bandsaw::runner {

void KernelCatalogue::library_loaded(const LibraryRef& library, std::span<const std::byte> image) {
  if (!enabled_()) return;
  auto kept = cloner_.keep(image);
  kept->library = library;
  keep(library.get(), std::move(kept));
}

void KernelCatalogue::module_loaded(const ModuleRef& module, std::span<const std::byte> image) {
  if (!enabled_()) return;
  auto kept = cloner_.keep(image);
  kept->module = module;
  keep(module.get(), std::move(kept));
}

// Also forgets modules that went with their context: nobody else tells of them.
void KernelCatalogue::keep(const Object* object, std::shared_ptr<KernelImage> image) {
  std::vector<std::shared_ptr<KernelImage>> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto it = images_.begin(); it != images_.end();) {
      const bool expired = it->first == object || (it->second->library.expired() && it->second->module.expired());
      if (expired) gone.push_back(std::move(it->second));
      it = expired ? images_.erase(it) : std::next(it);
    }
    images_[object] = std::move(image);
  }
  for (const auto& old : gone) forget_kernels(*old);
}

void KernelCatalogue::managed_bound(const LibraryRef& library, const std::string& name, uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(library.get());
  if (found == images_.end()) return;
  std::lock_guard image_lock(found->second->mutex);
  found->second->managed[name] = address;
}

// Call with the mutex held. A device may return the same object for a kernel that was found before.
void KernelCatalogue::add(const Object* object, const std::weak_ptr<Object>& alive,
                          const std::shared_ptr<KernelImage>& image, const std::string& name) {
  Known& known = kernels_[object];
  if (known.kernel && known.object.lock().get() == object) return;
  known.object = alive;
  std::weak_ptr<KnownKernel>& same = image->kernels[name];
  known.kernel = same.lock();
  if (known.kernel) return;
  known.kernel = std::make_shared<KnownKernel>();
  known.kernel->name = name;
  known.kernel->image = image;
  same = known.kernel;
}

void KernelCatalogue::kernel_found(const LibraryRef& library, const std::string& name, const KernelRef& kernel) {
  std::lock_guard lock(mutex_);
  if (const auto found = images_.find(library.get()); found != images_.end()) {
    add(kernel.get(), kernel, found->second, name);
  }
}

void KernelCatalogue::function_found(const ModuleRef& module, const std::string& name, const FunctionRef& function) {
  std::lock_guard lock(mutex_);
  if (const auto found = images_.find(module.get()); found != images_.end()) {
    add(function.get(), function, found->second, name);
  }
}

void KernelCatalogue::function_of_kernel(const KernelRef& kernel, const FunctionRef& function) {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(kernel.get());
  if (found == kernels_.end()) return;
  const KnownKernelRef same = found->second.kernel;
  kernels_[function.get()] = {function, same};
}

KnownKernelRef KernelCatalogue::find(const Code& code) {
  const std::shared_ptr<Object> object = code.kernel ? std::shared_ptr<Object>(code.kernel) : code.function;
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(object.get());
  if (found == kernels_.end()) return nullptr;
  if (found->second.object.lock() == object) return found->second.kernel;
  kernels_.erase(found);  // of another object, which was at this address before
  return nullptr;
}

void KernelCatalogue::attribute_set(const Code& code) {
  if (!enabled_()) return;
  if (const KnownKernelRef kernel = find(code)) ++kernel->attributes;
}

void KernelCatalogue::forget_image(const Object* image) {
  std::shared_ptr<KernelImage> gone;
  {
    std::lock_guard lock(mutex_);
    const auto found = images_.find(image);
    if (found == images_.end()) return;
    gone = std::move(found->second);
    images_.erase(found);
  }
  forget_kernels(*gone);
}

void KernelCatalogue::forget_kernels(const KernelImage& image) {
  std::vector<KnownKernelRef> gone;  // their clones are unloaded outside of the lock
  std::lock_guard lock(mutex_);
  for (auto it = kernels_.begin(); it != kernels_.end();) {
    const bool of_it = it->second.kernel->image.get() == &image;
    if (of_it) gone.push_back(std::move(it->second.kernel));
    it = of_it ? kernels_.erase(it) : std::next(it);
  }
}

void KernelCatalogue::forget_context(const Context* context) {
  std::vector<std::shared_ptr<KernelClonePlace>> gone;  // unloaded outside of the lock
  std::lock_guard lock(mutex_);
  for (const auto& [object, known] : kernels_) known.kernel->forget_clones(context, &gone);
}

}  // namespace bandsaw::runner
