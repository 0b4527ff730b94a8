#include "backend/runner/slicing/launch_under_way.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/runner/slicing/slicing_parts.h"
#include "memory/base/eventfd.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

void Flight::begin(size_t track) {
  ++launches;
  ++on_track[track];
}

void Flight::land(size_t track) {
  --on_track[track];
  --launches;
  notify();
}

void Flight::notify() const {
  if (!signal_event(wake_->get())) log::warn("cannot tell of the end of a launch: {}", std::strerror(errno));
}

LaunchUnderWay::LaunchUnderWay(const LaunchCaller& its_caller, StreamRef its_stream, const Launch& launch)
    : caller(its_caller),
      stream(std::move(its_stream)),
      parameters(launch.parameters.begin(), launch.parameters.end()),
      program(launch),
      blocks(blocks_of(launch)) {
  program.parameters = parameters;
}

uint64_t LaunchUnderWay::blocks_of(const Launch& launch) {
  uint64_t blocks = 0;
  const bool too_many =
      __builtin_mul_overflow(uint64_t{launch.grid[0]} * launch.grid[1], uint64_t{launch.grid[2]}, &blocks);
  return too_many ? 0 : blocks;
}

void LaunchUnderWay::fork(SlicingParts& parts, uint64_t slices) {
  if (slices == 1 || tracks) return;
  tracks = parts.tracks.take(caller.context, stream);
  forked = tracks->fork(stream) == CUDA_SUCCESS;
}

void LaunchUnderWay::measure(SlicingParts& parts) {
  if (shape && begun == 0) parts.timer.begin(caller.context, stream, &span);
}

void LaunchUnderWay::issued(SlicingParts& parts, size_t track) {
  count(parts.stats.counters().grid_slices);
  ++begun;
  flight->begin(track);
}

void LaunchUnderWay::stall(SlicingParts& parts) {
  parts.stats.refused(*kernel, "its blocks wait for one another");
  kernel->whole = held_up = stalled = true;
}

}  // namespace bandsaw::runner
