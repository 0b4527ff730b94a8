// A launch under way in pieces. Part of the slicer.
#pragma once

#include <array>
#include <chrono>

#include "backend/runner/slice_cell.h"
#include "backend/runner/slicer.h"

namespace bandsaw::runner {

// What the device's threads tell of a launch; outlives it.
struct Slicer::Flight {
  std::atomic<uint32_t> slices{0};
  std::atomic<bool> failed{false};
  std::shared_ptr<UniqueFd> wake;

  void land();
};

struct Slicer::Run {
  using Clock = std::chrono::steady_clock;

  Caller caller;
  StreamRef stream;
  SliceKernelRef kernel;
  std::shared_ptr<SliceShape> shape;  // null if nothing is measured
  std::shared_ptr<const SliceClone> clone;
  Launch slice;  // `parameters` views the next
  std::vector<std::byte> parameters;
  std::array<uint32_t, 3> grid{};  // as launched
  uint64_t next = 0, total = 0, step = 1;
  bool held_up = false;  // by the gate: its time says nothing
  SliceTimer::Span span;
  std::shared_ptr<Flight> flight;

  // Of resident blocks: `step` is how many, `next` how many have been drawn.
  std::shared_ptr<SliceCell> cell;
  Clock::time_point issued;
  bool told = false;  // to stop
  int stops = 0;
};

}  // namespace bandsaw::runner
