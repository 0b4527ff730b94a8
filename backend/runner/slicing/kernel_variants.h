// The rewritten variants of the program's kernels, for whoever launches them in the kernels' place.
#pragma once

#include <memory>

#include "backend/device/device.h"
#include "backend/runner/execution/worker_pool.h"
#include "backend/runner/slicing/allocations.h"
#include "backend/runner/slicing/kernel_cloner.h"
#include "backend/runner/slicing/known_kernel.h"
#include "backend/runner/slicing/slicing_settings.h"
#include "backend/runner/slicing/slicing_stats.h"

namespace bandsaw::runner {

// For the record loop's thread. Variants are made on a thread of its own; the destructor waits for the one under way.
class KernelVariants {
 public:
  // All arguments outlive it.
  KernelVariants(Device* device, KernelCloner* cloner, const SlicingSettings& settings, SlicingStats* stats,
                 const Allocations* allocations)
      : device_(*device), cloner_(*cloner), settings_(settings), stats_(*stats), allocations_(*allocations) {}

  // The variant for launches like this one, with the function attributes that the guest has set; begins to make it if
  // need be. Null: it is not ready yet, or was refused.
  std::shared_ptr<const KernelClone> find(const KnownKernelRef& kernel, const ContextRef& context, const Launch& launch,
                                          KernelVariant variant);
  // The kernel cannot run as persistent blocks. Whether it is launched in grid slices instead, from now on.
  bool turns_to_grid_slices(KnownKernel& kernel) const;

 private:
  std::shared_ptr<const KernelClone> find(const KnownKernelRef& kernel, const CloneRequest& request);
  bool reads_apart(const KernelClone& clone, const Launch& launch) const;
  void make(KernelClonePlace& place);
  void refused(KnownKernel& kernel, const KernelClonePlace& place);
  bool copy_attributes(const KnownKernel& kernel, KernelClonePlace& place, const Code& from);

  Device& device_;
  KernelCloner& cloner_;
  const SlicingSettings& settings_;
  SlicingStats& stats_;
  const Allocations& allocations_;
  WorkerPool worker_{1};  // finishes before the rest goes
};

}  // namespace bandsaw::runner
