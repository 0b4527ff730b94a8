// A launch under way in grid slices. Part of the slicer.
#pragma once

#include <array>
#include <chrono>
#include <optional>

#include "backend/control/gate_link.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
#include "backend/runner/slicing/slicer.h"

namespace bandsaw::runner {

// What the device's threads tell of a launch; outlives it.
struct Slicer::Flight {
  static constexpr size_t kTracksMost = kGateDepthMax + 1;  // as many as may be in flight, and one for what is left

  std::atomic<uint32_t> launches{0};                          // on the device: grid slices, or persistent blocks
  std::array<std::atomic<uint32_t>, kTracksMost> on_track{};  // of them
  std::atomic<bool> failed{false}, probing{false};
  std::atomic<int64_t> seen_ns{0};  // when the counter was last read
  std::shared_ptr<UniqueFd> wake;

  void land(size_t track);
  void notify() const;  // wakes the record loop
};

struct Slicer::Run {
  using Clock = std::chrono::steady_clock;

  Caller caller;
  StreamRef stream;
  KnownKernelRef kernel;
  std::shared_ptr<LaunchShape> shape;  // null if nothing is measured
  std::shared_ptr<const KernelClone> clone;
  Code code;      // as launched
  Launch launch;  // `parameters` views the next
  std::vector<std::byte> parameters;
  std::array<uint32_t, 3> grid{};  // as launched
  uint64_t next = 0, total = 0, step = 1;
  uint64_t size = 0;                // of a grid slice, as it was chosen for its shape
  uint64_t call = 0;                // of its descriptors; 0: there is none yet
  bool held_up = false;             // by the gate, or by itself: its time says nothing
  std::optional<int> tuned_blocks;  // as PersistentTuner::next() said; none: it was not asked, or is not followed
  bool paired = false;              // others were planned beside it
  bool alone = false;               // it is to run alone, if that is planned
  bool turns = false;               // when the grid slices in flight have ended: to persistent blocks, or
  std::shared_ptr<const KernelClone> next_clone;  // to this, when its first grid slice has been counted
  std::shared_ptr<ControlBlock> counts;           // where it is
  bool counted = false;                           // its time says nothing
  StreamTimer::Span span;
  std::shared_ptr<Flight> flight;
  std::shared_ptr<GridSliceTracks> tracks;       // null: it has the program's stream only
  uint32_t most_tracks = 1, most_in_flight = 1;  // how many of its grid slices may run beside each other, or be queued
  size_t track = 0;                              // of the next grid slice
  bool stuck = false;                            // its grid slices did not end, and all that was left has been issued
  uint32_t begun = 0, landed = 0;                // grid slices
  Clock::time_point moved;                       // when one of them last did

  // Of persistent blocks: `step` is how many, `next` how many have been claimed.
  std::shared_ptr<ControlBlock> control_block;
  Clock::time_point issued;
  bool claiming = false;       // it has been launched with this control block
  bool told = false;           // to stop
  uint64_t most_resident = 1;  // blocks on an SM
  uint32_t resident = 0;       // of these, as granted; 0: as is best for it alone
  bool granted = false;        // by a plan
  int stops = 0;
  bool probed = false, drained = false;  // at the counter; and nothing was left there
  Clock::time_point next_probe;          // the next time
  std::optional<uint32_t> peeked;        // how many had been claimed when that was last asked for
};

}  // namespace bandsaw::runner
