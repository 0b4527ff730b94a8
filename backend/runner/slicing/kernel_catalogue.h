// Which kernels the program has: what it loads, looks up and unloads, from a kernel's handle to what is known of it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "backend/device/device.h"
#include "backend/runner/slicing/kernel_cloner.h"
#include "backend/runner/slicing/known_kernel.h"

namespace bandsaw::runner {

// Thread-safe. It holds no library, module or kernel: what is gone is forgotten.
class KernelCatalogue {
 public:
  // `cloner` outlives it. What is loaded while `enabled` says no is not known; any thread asks it.
  KernelCatalogue(KernelCloner* cloner, std::function<bool()> enabled)
      : cloner_(*cloner), enabled_(std::move(enabled)) {}

  void library_loaded(const LibraryRef& library, std::span<const std::byte> image);
  void module_loaded(const ModuleRef& module, std::span<const std::byte> image);
  void managed_bound(const LibraryRef& library, const std::string& name, uint64_t address);
  void kernel_found(const LibraryRef& library, const std::string& name, const KernelRef& kernel);
  void function_found(const ModuleRef& module, const std::string& name, const FunctionRef& function);
  void function_of_kernel(const KernelRef& kernel, const FunctionRef& function);
  void attribute_set(const Code& code);
  void forget_image(const Object* image);  // a library or module
  // The rewritten variants in that context.
  void forget_context(const Context* context);

  // Null: it was not found in an image that is here.
  KnownKernelRef find(const Code& code);

 private:
  struct Known {
    std::weak_ptr<Object> object;  // the same as the key, unless that is gone
    KnownKernelRef kernel;
  };

  void keep(const Object* object, std::shared_ptr<KernelImage> image);
  void forget_kernels(const KernelImage& image);
  void add(const Object* object, const std::weak_ptr<Object>& alive, const std::shared_ptr<KernelImage>& image,
           const std::string& name);

  KernelCloner& cloner_;
  const std::function<bool()> enabled_;
  std::mutex mutex_;
  std::unordered_map<const Object*, std::shared_ptr<KernelImage>> images_;  // guarded by mutex_; by library or module
  std::unordered_map<const Object*, Known> kernels_;                        // guarded by mutex_
};

}  // namespace bandsaw::runner
