// What a warp has done, while it runs: compiled code that records fills it through helpers.
#pragma once

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft {

// Used by the warp's thread only.
struct WarpRecording {
  timing::WarpTrace trace;
  size_t most = 0;           // words
  uint32_t local_index = 0;  // of the warp among those that are recorded: local memory of each is elsewhere
  void* of = nullptr;        // LaunchRecording
  // Called once when no more words fit: it writes what there is.
  void (*full)(WarpRecording* recording) = nullptr;
};

}  // namespace bandsaw::soft
