// A launch in grid slices: parts of the grid, in order, each a launch of its own.
#pragma once

#include "backend/runner/slicing/clone_launch.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/launch_variant.h"
#include "backend/runner/slicing/slicing_parts.h"

namespace bandsaw::runner {

class SlicedLaunch : public LaunchVariant {
 public:
  SlicedLaunch(SlicingParts* parts, LaunchUnderWay* launch, std::shared_ptr<const KernelClone> clone)
      : parts_(*parts), launch_(*launch), clone_launch_(std::move(clone), launch->program) {}

  bool may_issue() const override;
  std::optional<LaunchId> next_id() const override;
  CUresult issue() override;
  CUresult issue_rest() override;
  bool turns() const override { return turns_; }
  std::shared_ptr<const KernelClone> turn() override;
  void describe(KernelDescriptor* descriptor) const override;
  const KernelClone& clone() const override { return clone_launch_.clone(); }

 protected:
  // Blocks of the next grid slice, after the gate has let it in.
  uint64_t next_blocks();
  void lay_tracks();

  SlicingParts& parts_;
  LaunchUnderWay& launch_;
  CloneLaunch clone_launch_;
  bool turns_ = false;

 private:
  uint64_t granted_blocks();
  bool may_turn_persistent() const;
  StreamRef next_track();
  CUresult put(uint64_t blocks);

  bool laid_ = false;            // lay_tracks() has been called
  uint32_t most_in_flight_ = 1;  // grid slices that may be on the device, queued ones included
  uint32_t most_tracks_ = 1;     // and those that may run beside each other
  size_t track_ = 0;             // of the next grid slice
};

}  // namespace bandsaw::runner
