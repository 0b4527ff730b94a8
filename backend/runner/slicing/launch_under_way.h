// A launch that is being cut: what is true of it however its blocks get onto the device.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/control/gate_link.h"
#include "backend/device/device.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
#include "backend/runner/slicing/known_kernel.h"
#include "backend/runner/slicing/stream_timer.h"
#include "backend/runner/wire/command_ring.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

struct SlicingParts;

// Who launches.
struct LaunchCaller {
  std::shared_ptr<CommandRing> ring;  // gets errors of later grid slices
  ContextRef context;
  uint64_t stream_key = 0;
  bool may_capture = false;  // some stream of the process captures, or did
};

// What the device's threads write: what of a launch has ended. They hold a reference, so that it may outlive the
// launch.
struct Flight {
  // One for each grid slice that may be in flight, and one for the rest of a stalled launch.
  static constexpr size_t kTracksMost = kGateDepthMax + 1;

  explicit Flight(std::shared_ptr<UniqueFd> wake) : wake_(std::move(wake)) {}
  // A grid slice, or a launch of persistent blocks, begins or ends on the track.
  void begin(size_t track);
  void land(size_t track);
  // Wakes the record loop.
  void notify() const;

  std::atomic<uint32_t> launches{0};                          // that have been issued and have not ended
  std::array<std::atomic<uint32_t>, kTracksMost> on_track{};  // the same by track
  std::atomic<bool> failed{false};                            // one of them has
  std::atomic<bool> waits{false};                             // for copies before it on the program's stream
  std::atomic<bool> probing{false};                           // a counter is being copied to the host
  std::atomic<int64_t> seen_ns{0};                            // when it last was

 private:
  const std::shared_ptr<UniqueFd> wake_;
};

// For the record loop's thread.
struct LaunchUnderWay {
  LaunchUnderWay(const LaunchCaller& its_caller, StreamRef its_stream, const Launch& launch);

  // Blocks of a grid; 0: more than can be counted.
  static uint64_t blocks_of(const Launch& launch);
  std::array<uint32_t, 3> grid() const { return {program.grid[0], program.grid[1], program.grid[2]}; }
  // Streams beside the program's, for `slices` grid slices; they begin after what the program's stream has been given.
  // Nothing is done if there is only one, or if the launch has them.
  void fork(SlicingParts& parts, uint64_t slices);
  // Call just before the first of it goes to the device: what the launch waited for before that is not its own time.
  void measure(SlicingParts& parts);
  // A grid slice, or a launch of persistent blocks, is on the device.
  void issued(SlicingParts& parts, size_t track);
  // It is given up: its blocks wait for one another. The kernel runs whole from then on.
  void stall(SlicingParts& parts);
  // Nothing of it is on the device, and nothing went wrong: what it used may be used again.
  bool is_clean() const { return flight->launches == 0 && !flight->failed && !stalled; }

  const LaunchCaller caller;
  const StreamRef stream;
  std::vector<std::byte> parameters;
  Launch program;         // as the program launched it, with the parameters above
  const uint64_t blocks;  // of the grid
  KnownKernelRef kernel;
  std::shared_ptr<LaunchShape> shape;  // null if nothing is measured
  std::shared_ptr<Flight> flight;
  std::shared_ptr<GridSliceTracks> tracks;  // null: it has the program's stream only
  bool forked = false;                      // the tracks may be used
  uint64_t next = 0;                        // of the blocks, issued; of persistent blocks: claimed
  uint32_t begun = 0;                       // grid slices, and launches of persistent blocks
  // None ended for too long. All that was left has been issued, and no more is done for it.
  bool stalled = false;
  uint64_t call = 0;   // KernelDescriptor::call; 0: it has not been described yet
  bool noted = false;  // it has been described at an open gate, where it is not planned
  bool alone = false;  // it asks to run alone

  // What is learnt from its time.
  StreamTimer::Span span;
  uint64_t size = 0;     // blocks of a grid slice, as chosen for the shape
  bool paired = false;   // others were planned beside it
  bool counted = false;  // its first grid slice counted what its blocks do
  bool held_up = false;  // the gate or the slicer has held it up
  // Persistent blocks on each SM that PersistentTuner::next() asked for, or kSliced. None: the tuner was not asked, or
  // what it said was not done.
  std::optional<int> tuned_blocks;
};

}  // namespace bandsaw::runner
