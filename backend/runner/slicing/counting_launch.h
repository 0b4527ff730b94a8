// A launch whose first grid slice counts what its blocks do, once for each shape, so that whoever plans knows how a
// kernel uses the device alone. It goes on as the variant that it would have begun with.
#pragma once

#include <memory>

#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/sliced_launch.h"

namespace bandsaw::runner {

class CountingLaunch final : public SlicedLaunch {
 public:
  // Null: nothing is to be counted, or the counting variant is not ready. `next` follows the grid slice that counts.
  static std::unique_ptr<CountingLaunch> make(SlicingParts* parts, LaunchUnderWay* launch,
                                              std::shared_ptr<const KernelClone> next);

  CUresult issue() override;
  CUresult issue_rest() override;
  std::shared_ptr<const KernelClone> turn() override;
  void give_back() override;

 private:
  CountingLaunch(SlicingParts* parts, LaunchUnderWay* launch, std::shared_ptr<const KernelClone> counting,
                 std::shared_ptr<ControlBlock> counts, std::shared_ptr<const KernelClone> next);
  void take_counts();

  std::shared_ptr<ControlBlock> counts_;
  std::shared_ptr<const KernelClone> next_;  // null: the grid slice that counts is over, or will not come
};

}  // namespace bandsaw::runner
