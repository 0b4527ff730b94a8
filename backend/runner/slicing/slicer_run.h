// One launch that is under way in grid slices or as persistent blocks: the slicer's state of it.
#pragma once

#include <array>
#include <chrono>
#include <optional>

#include "backend/control/gate_link.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
#include "backend/runner/slicing/slicer.h"

namespace bandsaw::runner {

// What the device's threads write: which of a launch's grid slices have ended. They hold a reference, so that it may
// outlive the Run.
struct Slicer::Flight {
  // One for each grid slice that may be in flight, and one for the rest of a stalled launch.
  static constexpr size_t kTracksMost = kGateDepthMax + 1;

  std::atomic<uint32_t> launches{0};  // that have been issued and have not ended: grid slices, or persistent blocks
  std::array<std::atomic<uint32_t>, kTracksMost> on_track{};  // the same by track
  std::atomic<bool> failed{false};                            // one of them has
  std::atomic<bool> probing{false};                           // the counter is being copied to the host
  std::atomic<int64_t> seen_ns{0};                            // when it last was
  std::shared_ptr<UniqueFd> wake;

  // A launch on the track has ended.
  void land(size_t track);
  // Wakes the record loop.
  void notify() const;
};

struct Slicer::Run {
  using Clock = std::chrono::steady_clock;

  Caller caller;
  StreamRef stream;
  KnownKernelRef kernel;
  std::shared_ptr<LaunchShape> shape;        // null if nothing is measured
  std::shared_ptr<const KernelClone> clone;  // what is launched in the kernel's place
  Code code;                                 // the kernel as the program launched it
  std::array<uint32_t, 3> grid{};            // as the program launched it
  Launch launch;                             // the next launch of the clone; its parameters are those below
  std::vector<std::byte> parameters;
  uint64_t total = 0;   // blocks of the grid
  uint64_t next = 0;    // of these, issued; of persistent blocks: claimed
  uint64_t step = 1;    // blocks of the next grid slice; of persistent blocks: how many are launched
  uint64_t size = 0;    // blocks of a grid slice, as chosen for the shape
  uint64_t call = 0;    // KernelDescriptor::call; 0: it has not been described yet
  bool paired = false;  // others were planned beside it
  bool alone = false;   // it asks to run alone
  // Its time is not used to learn from: the gate or the slicer has held it up.
  bool held_up = false;
  // Persistent blocks on each SM that PersistentTuner::next() asked for, or kSliced. None: the tuner was not asked, or
  // what it said was not done.
  std::optional<int> tuned_blocks;
  // No more grid slices are issued; when those in flight have ended, the launch goes on with `next_clone`, or, where
  // that is null, as persistent blocks if it can.
  bool turns = false;
  std::shared_ptr<const KernelClone> next_clone;
  // Its first grid slice counts what its blocks do: into `counts`. Its time is not used to learn from.
  bool counted = false;
  std::shared_ptr<ControlBlock> counts;
  StreamTimer::Span span;
  std::shared_ptr<Flight> flight;
  std::shared_ptr<GridSliceTracks> tracks;  // null: it has the program's stream only
  uint32_t most_tracks = 1;                 // grid slices that may run beside each other
  uint32_t most_in_flight = 1;              // and those that may be on the device, queued ones included
  size_t track = 0;                         // of the next grid slice
  uint32_t begun = 0, landed = 0;           // launches of the clone: issued; ended when is_stalled() was last called
  Clock::time_point moved;                  // when one last ended, or none was on the device
  // None ended for too long. All that was left has been issued, and no more is done for it.
  bool stalled = false;

  // The rest is of persistent blocks.
  std::shared_ptr<ControlBlock> control_block;  // null: it is launched in grid slices
  Clock::time_point issued;                     // when they were last launched
  bool claiming = false;                        // they have been launched with this control block
  bool told = false;                            // they are to stop
  int stops = 0;                                // how often they were told so
  uint64_t most_resident = 1;                   // the most that fit on an SM
  bool granted = false;                         // a plan has said how many
  uint32_t resident = 0;                        // on each SM, as the plan said; 0: as many as are best for it alone
  bool drained = false;                         // the last block of the grid has been claimed
  bool probed = false;                          // the counter was asked for, and the answer not looked at yet
  Clock::time_point next_probe;                 // when to ask for it again
  std::optional<uint32_t> peeked;               // what it was when is_stalled() last looked
};

}  // namespace bandsaw::runner
