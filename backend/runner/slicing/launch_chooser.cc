#include "backend/runner/slicing/launch_chooser.h"

#include <algorithm>

#include "backend/runner/slicing/clone_launch.h"

namespace bandsaw::runner {
namespace {

constexpr size_t kShapesMost = 64;

// CUDA's limits. Another grid goes to the device as it is, which refuses it.
bool is_valid_grid(const Launch& launch) {
  constexpr uint32_t kMostX = 0x7fffffff, kMostYZ = 0xffff;
  return LaunchUnderWay::blocks_of(launch) != 0 && launch.grid[0] <= kMostX && launch.grid[1] <= kMostYZ &&
         launch.grid[2] <= kMostYZ;
}

}  // namespace

LaunchChoice LaunchChooser::choose(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch) {
  LaunchChoice choice;
  const KnownKernelRef kernel = kernels_.find(launch.code);
  if (!kernel || kernel->whole || parts_.gate.is_slicing_off() || !is_valid_grid(launch)) return choice;
  choice.kernel = kernel;
  if (parts_.settings.force_blocks == 0) {
    choice.shape = shape_of(*kernel, launch);
    if (!choice.shape) return choice;
    if (choice.shape->size.hopeless()) parts_.stats.refused(*kernel, "its rewritten variant is slower");
    if (!is_long(*choice.shape)) return choice;
  }
  if (const std::string reason = refusal(caller, stream, launch); !reason.empty()) {
    parts_.stats.refused(*kernel, reason);
    return choice;
  }
  choice.clone = clone_for(choice, caller.context, launch);
  return choice;
}

// Null: the grid fits on the device at once, so that there is nothing to cut.
std::shared_ptr<LaunchShape> LaunchChooser::shape_of(KnownKernel& kernel, const Launch& launch) {
  const uint64_t blocks = LaunchUnderWay::blocks_of(launch);
  if (blocks <= parts_.sms) return nullptr;
  auto shape = kernel.find_shape(launch);
  if (!shape) {
    if (kernel.shapes.size() >= kShapesMost) kernel.shapes.erase(kernel.shapes.begin());
    const uint32_t resident = std::max(resident_blocks(parts_.device, launch), 1u);
    shape = std::make_shared<LaunchShape>(launch, blocks, uint64_t{resident} * parts_.sms, parts_.sms);
    kernel.shapes.push_back(shape);
  }
  return shape->blocks > shape->wave ? shape : nullptr;
}

// Where all others go first, what they wait for is the end of a block.
bool LaunchChooser::is_long(const LaunchShape& shape) const {
  return shape.block_ns() >= parts_.gate.uncut_block_ns() && shape.typical_ns >= parts_.settings.threshold_ns &&
         shape.size.blocks() < shape.blocks && !shape.size.hopeless();
}

std::string LaunchChooser::refusal(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch) const {
  const auto any = [](const uint32_t(&size)[3]) { return size[0] > 1 || size[1] > 1 || size[2] > 1; };
  if (launch.cooperative) return "it is launched cooperatively";
  if (any(launch.cluster) || any(launch.preferred_cluster)) return "it is launched in clusters";
  if (launch.programmatic) return "it is launched before the work ahead of it has ended";
  if (!caller.context) return "it is launched without a current context";
  CaptureInfo info;
  if (caller.may_capture &&
      (parts_.device.capture_info(stream, &info) != CUDA_SUCCESS || info.status != CU_STREAM_CAPTURE_STATUS_NONE)) {
    return "it is launched into a graph";
  }
  return "";
}

// Under variant `auto` and where the arbiter plans: persistent blocks, unless the last launch was planned alone and
// grid slices are faster for the kernel. Else grid slices.
KernelVariant LaunchChooser::wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const {
  if (parts_.settings.variant == VariantChoice::kPersistent) return KernelVariant::kPersistent;
  if (parts_.settings.variant == VariantChoice::kSliced || kernel.only_grid_slices) return KernelVariant::kSliced;
  const bool stays = !shape || shape->paired || shape->persistent_tuner.next() != slice::PersistentTuner::kSliced;
  return stays && parts_.gate.is_planned(kCompute) ? KernelVariant::kPersistent : KernelVariant::kSliced;
}

std::shared_ptr<const KernelClone> LaunchChooser::clone_for(const LaunchChoice& choice, const ContextRef& context,
                                                            const Launch& launch) {
  const KernelVariant wanted = wanted_variant(*choice.kernel, choice.shape.get());
  auto clone = parts_.variants.find(choice.kernel, context, launch, wanted);
  if (!clone && parts_.settings.variant == VariantChoice::kAuto) {
    clone = parts_.variants.find(choice.kernel, context, launch, KernelVariant::kSliced);
  }
  // With fewer parameters than it has, the device refuses the launch.
  return clone && launch.parameters.size() >= clone->original_bytes ? clone : nullptr;
}

}  // namespace bandsaw::runner
