// Which persistent blocks are to stop, and how, so that some SMs become free: Chimera's choice for a request of several
// SMs against a bound (vgpu-sched/slice/preemption.h), by what the blocks have stamped.
//
// What switches all of a program off at once, the hardware's time slices, frees no single SM: of Chimera's techniques
// blocks here have draining and flushing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vgpu-sched/ptx/persistent.h"

namespace bandsaw::runner {

struct SmRequest {
  size_t sms = 0;       // wanted; at most half of those that have blocks are given, but one
  double bound_ns = 0;  // so long it may take
  double block_ns = 0;  // what a block takes; 0: not known
  bool may_drop = false;
};

struct SmChoice {
  std::vector<uint32_t> stops;  // a stop word for each place
  size_t sms = 0;               // that become free
  size_t drained = 0, dropped = 0;
  size_t late = 0;        // SMs that miss the bound
  double latency_ns = 0;  // until the last one is free, as forecast
};

// `stamps`: by place, as read while they run. "Now" is the latest of them: nothing on the host has that clock. A
// program that writes to memory not its own may have put anything there; then other blocks stop, and claim again later.
SmChoice choose_sms(std::span<const ptx::BlockStamp> stamps, const SmRequest& request);

}  // namespace bandsaw::runner
