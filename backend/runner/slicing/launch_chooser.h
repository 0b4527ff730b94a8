// Decides which launches are cut, and with which variant of their kernel.
#pragma once

#include <memory>
#include <string>

#include "backend/runner/slicing/kernel_catalogue.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/slicing_parts.h"

namespace bandsaw::runner {

struct LaunchChoice {
  KnownKernelRef kernel;
  std::shared_ptr<LaunchShape> shape;        // null: nothing is measured
  std::shared_ptr<const KernelClone> clone;  // what is launched in the kernel's place; null: it runs whole
};

// For the record loop's thread.
class LaunchChooser {
 public:
  // Both outlive it.
  LaunchChooser(KernelCatalogue* kernels, SlicingParts* parts) : kernels_(*kernels), parts_(*parts) {}

  // Of launches of a long kernel this begins to make the variant that they need.
  LaunchChoice choose(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch);
  // Why this launch may neither be cut nor measured; empty: it may.
  std::string refusal(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch) const;

 private:
  std::shared_ptr<LaunchShape> shape_of(KnownKernel& kernel, const Launch& launch);
  bool is_long(const LaunchShape& shape) const;
  KernelVariant wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const;
  std::shared_ptr<const KernelClone> clone_for(const LaunchChoice& choice, const ContextRef& context,
                                               const Launch& launch);

  KernelCatalogue& kernels_;
  SlicingParts& parts_;
};

}  // namespace bandsaw::runner
