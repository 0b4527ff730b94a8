// What the parts of the slicer share.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/device/device.h"
#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/gate.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
#include "backend/runner/slicing/kernel_variants.h"
#include "backend/runner/slicing/launch_describer.h"
#include "backend/runner/slicing/slicing_settings.h"
#include "backend/runner/slicing/slicing_stats.h"
#include "backend/runner/slicing/stream_timer.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// For the record loop's thread. All of it outlives the launches that are under way; `wake` may outlive the rest.
struct SlicingParts {
  Device& device;
  GateView& gate;
  const SlicingSettings& settings;
  const Clock& clock;
  const uint32_t sms;  // of the device
  SlicingStats& stats;
  KernelVariants& variants;
  LaunchDescriber& describer;
  StreamTimer& timer;
  ControlBlockPool& control_blocks;
  GridSliceTracksPool& tracks;
  const std::shared_ptr<UniqueFd> wake;  // becomes readable when something that was issued ends
};

}  // namespace bandsaw::runner
