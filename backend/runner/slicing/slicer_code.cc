// Of the slicer: which kernels there are, and their rewritten variants.
#include <algorithm>
#include <iterator>

#include "backend/runner/slicing/slicer.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

void Slicer::library_loaded(const LibraryRef& library, std::span<const std::byte> image) {
  if (!settings_.enabled) return;
  auto kept = code_.keep(image);
  kept->library = library;
  keep(library.get(), std::move(kept));
}

void Slicer::module_loaded(const ModuleRef& module, std::span<const std::byte> image) {
  if (!settings_.enabled) return;
  auto kept = code_.keep(image);
  kept->module = module;
  keep(module.get(), std::move(kept));
}

// Also forgets modules that went with their context: nobody else tells of them.
void Slicer::keep(const Object* object, std::shared_ptr<KernelImage> image) {
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

void Slicer::managed_bound(const LibraryRef& library, const std::string& name, uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(library.get());
  if (found == images_.end()) return;
  std::lock_guard image_lock(found->second->mutex);
  found->second->managed[name] = address;
}

// Call with the mutex held. A device may return the same object for a kernel that was found before.
void Slicer::add(const Object* object, const std::weak_ptr<Object>& alive, const std::shared_ptr<KernelImage>& image,
                 const std::string& name) {
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

void Slicer::kernel_found(const LibraryRef& library, const std::string& name, const KernelRef& kernel) {
  std::lock_guard lock(mutex_);
  if (const auto found = images_.find(library.get()); found != images_.end()) {
    add(kernel.get(), kernel, found->second, name);
  }
}

void Slicer::function_found(const ModuleRef& module, const std::string& name, const FunctionRef& function) {
  std::lock_guard lock(mutex_);
  if (const auto found = images_.find(module.get()); found != images_.end()) {
    add(function.get(), function, found->second, name);
  }
}

void Slicer::function_of_kernel(const KernelRef& kernel, const FunctionRef& function) {
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(kernel.get());
  if (found == kernels_.end()) return;
  const KnownKernelRef same = found->second.kernel;
  kernels_[function.get()] = {function, same};
}

KnownKernelRef Slicer::find(const Code& code) {
  const std::shared_ptr<Object> object = code.kernel ? std::shared_ptr<Object>(code.kernel) : code.function;
  std::lock_guard lock(mutex_);
  const auto found = kernels_.find(object.get());
  if (found == kernels_.end()) return nullptr;
  if (found->second.object.lock() == object) return found->second.kernel;
  kernels_.erase(found);  // of another object, which was at this address before
  return nullptr;
}

void Slicer::attribute_set(const Code& code) {
  if (!settings_.enabled) return;
  if (const KnownKernelRef kernel = find(code)) ++kernel->attributes;
}

void Slicer::forget_image(const Object* image) {
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

void Slicer::forget_kernels(const KernelImage& image) {
  std::vector<KnownKernelRef> gone;  // their clones are unloaded outside of the lock
  std::lock_guard lock(mutex_);
  for (auto it = kernels_.begin(); it != kernels_.end();) {
    const bool of_it = it->second.kernel->image.get() == &image;
    if (of_it) gone.push_back(std::move(it->second.kernel));
    it = of_it ? kernels_.erase(it) : std::next(it);
  }
}

void Slicer::forget_context(const Context* context) {
  tracks_.forget(context);
  std::vector<std::shared_ptr<KernelClonePlace>> gone;
  std::lock_guard lock(mutex_);
  for (const auto& [object, known] : kernels_) {
    auto& clones = known.kernel->clones;
    const auto of_it = [&](const std::shared_ptr<KernelClonePlace>& place) {
      return place->request.context.get() == context;
    };
    std::copy_if(clones.begin(), clones.end(), std::back_inserter(gone), of_it);
    std::erase_if(clones, of_it);
  }
}

// Under variant `auto` and where the arbiter plans: persistent blocks, unless the last launch was planned alone and
// grid slices are faster for the kernel. Else grid slices.
KernelVariant Slicer::wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const {
  if (settings_.variant == VariantChoice::kPersistent) return KernelVariant::kPersistent;
  if (settings_.variant == VariantChoice::kSliced || kernel.only_grid_slices) return KernelVariant::kSliced;
  const bool stays = !shape || shape->paired || shape->persistent_tuner.next() != slice::PersistentTuner::kSliced;
  return stays && gate_.is_planned(kCompute) ? KernelVariant::kPersistent : KernelVariant::kSliced;
}

// The rewritten kernel, which this begins to make if need be. Null: it is not ready yet, or was refused.
std::shared_ptr<const KernelClone> Slicer::clone_of(const KnownKernelRef& kernel, const Caller& caller,
                                                    const Launch& launch, KernelVariant variant) {
  const bool one_dimensional = launch.grid[1] == 1 && launch.grid[2] == 1;
  std::shared_ptr<KernelClonePlace> place;
  bool fresh = false;
  {
    std::lock_guard lock(mutex_);
    place = kernel->find_clone(caller.context.get(), one_dimensional, variant);
    if (!place) {
      fresh = true;
      place = std::make_shared<KernelClonePlace>();
      place->request = {kernel->image, kernel->name, launch.code, caller.context, one_dimensional, variant};
      kernel->clones.push_back(place);
    }
  }
  if (fresh) {
    if (!std::exchange(kernel->counted, true)) count(stats_.counters().kernels);
    if (settings_.force_blocks != 0) {
      make(place);
    } else {
      worker_.post([this, place] { make(place); });
    }
  }
  return use(*kernel, *place, launch);
}

void Slicer::make(const std::shared_ptr<KernelClonePlace>& place) {
  auto made = code_.make(place->request);
  if (made.ok()) {
    place->clone = std::move(made.value());
  } else {
    place->refusal = made.status().message();
  }
  place->state.store(made.ok() ? KernelClonePlace::State::kReady : KernelClonePlace::State::kRefused);
}

// For a kernel that cannot have persistent blocks: returns whether it is launched in grid slices instead, from now on.
bool Slicer::turns_to_grid_slices(KnownKernel& kernel) const {
  kernel.only_grid_slices = settings_.variant == VariantChoice::kAuto;
  return kernel.only_grid_slices;
}

// The clone if it is ready, with the function attributes that the guest has set meanwhile. Record loop's thread only.
std::shared_ptr<const KernelClone> Slicer::use(KnownKernel& kernel, KernelClonePlace& place, const Launch& launch) {
  switch (place.state.load()) {
    case KernelClonePlace::State::kMaking:
      return nullptr;
    case KernelClonePlace::State::kRefused:
      if (place.request.variant == KernelVariant::kPersistent && turns_to_grid_slices(kernel)) return nullptr;
      if (place.request.variant == KernelVariant::kCounting) return nullptr;
      refuse(kernel, place.refusal);
      kernel.whole = true;
      return nullptr;
    case KernelClonePlace::State::kReady:
      break;
  }
  if (!std::exchange(kernel.sliceable, true)) count(stats_.counters().sliceable);
  const uint32_t attributes = kernel.attributes;
  if (place.attributes == attributes) return place.clone;
  FunctionInfo info;
  if (device_.function_info(launch.code, &info) != CUDA_SUCCESS) return nullptr;
  for (const CUfunction_attribute attribute :
       {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT}) {
    const CUresult result =
        device_.function_set_attribute({nullptr, place.clone->function}, attribute, info.info.attributes[attribute]);
    if (result != CUDA_SUCCESS)
      log::debug("{}: attribute {} of its grid slices: error {}", kernel.name, int{attribute},
                 static_cast<int>(result));
  }
  place.attributes = attributes;
  return place.clone;
}

}  // namespace bandsaw::runner
