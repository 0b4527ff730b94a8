#include "backend/runner/slicing/kernel_variants.h"

#include "memory/base/log.h"

namespace bandsaw::runner {

std::shared_ptr<const KernelClone> KernelVariants::find(const KnownKernelRef& kernel, const ContextRef& context,
                                                        const Launch& launch, KernelVariant variant) {
  const bool one_dimensional = launch.grid[1] == 1 && launch.grid[2] == 1;
  CloneRequest request{kernel->image,
                       kernel->name,
                       launch.code,
                       context,
                       one_dimensional,
                       variant,
                       settings_.resize,
                       settings_.take_ns.has_value(),
                       settings_.drop_ns.has_value(),
                       settings_.drop_strict};
  auto clone = find(kernel, request);
  if (!clone || !reads_apart(*clone, launch)) return clone;
  request.reads_apart = true;
  auto droppable = find(kernel, request);
  return droppable ? droppable : clone;
}

bool KernelVariants::reads_apart(const KernelClone& clone, const Launch& launch) const {
  const auto find_range = [this](uint64_t address) { return allocations_.find(address); };
  return clone.if_apart && ptx::disjoint(*clone.if_apart, launch.parameters, find_range);
}

std::shared_ptr<const KernelClone> KernelVariants::find(const KnownKernelRef& kernel, const CloneRequest& request) {
  const auto [place, fresh] = kernel->clone_place(request);
  if (fresh) {
    stats_.met(*kernel);
    if (settings_.force_blocks != 0) {
      make(*place);
    } else {
      worker_.post([this, place] { make(*place); });
    }
  }
  const KernelClonePlace::State state = place->state.load();
  if (state == KernelClonePlace::State::kRefused) refused(*kernel, *place);
  if (state != KernelClonePlace::State::kReady) return nullptr;
  stats_.rewritten(*kernel);
  return copy_attributes(*kernel, *place, request.original) ? place->clone : nullptr;
}

void KernelVariants::make(KernelClonePlace& place) {
  auto made = cloner_.make(place.request);
  if (made.ok()) {
    place.clone = std::move(made.value());
  } else {
    place.refusal = made.status().message();
  }
  place.state.store(made.ok() ? KernelClonePlace::State::kReady : KernelClonePlace::State::kRefused);
}

void KernelVariants::refused(KnownKernel& kernel, const KernelClonePlace& place) {
  if (place.request.variant == KernelVariant::kCounting || place.request.reads_apart) return;
  if (place.request.variant == KernelVariant::kPersistent && turns_to_grid_slices(kernel)) return;
  stats_.refused(kernel, place.refusal);
  kernel.whole = true;
}

bool KernelVariants::turns_to_grid_slices(KnownKernel& kernel) const {
  kernel.only_grid_slices = settings_.variant == VariantChoice::kAuto;
  return kernel.only_grid_slices;
}

// The attributes that bear on a launch, if the guest has set some since they were last copied.
bool KernelVariants::copy_attributes(const KnownKernel& kernel, KernelClonePlace& place, const Code& from) {
  const uint32_t attributes = kernel.attributes;
  if (place.attributes == attributes) return true;
  FunctionInfo info;
  if (device_.function_info(from, &info) != CUDA_SUCCESS) return false;
  for (const CUfunction_attribute attribute :
       {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT}) {
    const CUresult result =
        device_.function_set_attribute({nullptr, place.clone->function}, attribute, info.info.attributes[attribute]);
    if (result != CUDA_SUCCESS) {
      log::debug("{}: attribute {} of its variant: error {}", kernel.name, int{attribute}, static_cast<int>(result));
    }
  }
  place.attributes = attributes;
  return true;
}

}  // namespace bandsaw::runner
