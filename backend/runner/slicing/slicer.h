// Cuts launches of long kernels into grid slices: parts of the grid, in order, each a launch of a rewritten kernel and
// a time slice of its own at the gate, so that others get the engine in between. Instead of grid slices a launch may be
// persistent blocks. While a launch is under way, records that may depend on it wait (Process): to the program it is
// one launch.
//
// This is what the record loop sees of it. The parts:
//   KernelCatalogue  which kernels there are, and what is known of each (KnownKernel)
//   KernelVariants   their rewritten variants (KernelCloner)
//   LaunchChooser    which launches are cut
//   CutLaunch        one that is: LaunchUnderWay, what holds for all; LaunchVariant, how blocks get onto the device
//                    (SlicedLaunch, CountingLaunch, PersistentLaunch); StallWatch
//   LaunchDescriber  what the arbiter is told
#pragma once

#include <list>
#include <memory>
#include <unordered_set>

#include "backend/runner/slicing/cut_launch.h"
#include "backend/runner/slicing/kernel_catalogue.h"
#include "backend/runner/slicing/launch_chooser.h"
#include "backend/runner/slicing/slicing_parts.h"
#include "backend/runner/wire/stream_order.h"

namespace bandsaw::runner {

// What becomes of a launch.
struct PreparedLaunch {
  std::shared_ptr<LaunchShape> shape;  // null: nothing is learnt from it
  std::unique_ptr<CutLaunch> cut;      // null: it runs whole
};

class Slicer {
 public:
  // All arguments outlive the slicer. Grid slices on the device may outlive it too.
  Slicer(Device* device, GateView* gate, UsagePageView* usage_page, StreamOrder* order, const SlicingSettings& settings,
         const Clock* clock);

  bool enabled() const { return settings_.enabled; }

  // What the program loads, looks up and unloads goes here. Any thread, as forget_context.
  KernelCatalogue& kernels() { return kernels_; }
  KernelCloner& cloner() { return cloner_; }  // any thread
  void forget_context(const Context* context);

  // All that follows is called on the record loop's thread.

  // The program has memory there, or has it no more.
  void allocated(uint64_t address, uint64_t bytes) {
    if (settings_.drop_ns) allocations_.add(address, bytes);
  }
  void freed(uint64_t address) {
    if (settings_.drop_ns) allocations_.remove(address);
  }
  // A copy has been put on the stream.
  void copied(uint64_t stream_key) {
    if (settings_.await_copies && copied_.size() < kCopiedMost) copied_.insert(stream_key);
  }
  // Decides, before the gate, whether the launch is cut. One that is does not pass the gate: its grid slices do.
  PreparedLaunch prepare(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch);
  // Launches the kernel whole, or begins to launch it in grid slices or as persistent blocks. The arguments are those
  // with which it was prepared.
  CUresult launch(PreparedLaunch prepared, const LaunchCaller& caller, const StreamRef& stream, const Launch& launch);
  // Some launch has blocks that are not issued yet.
  bool busy() const { return !under_way_.empty(); }
  bool holds(const CommandRing& ring) const;
  // Issues as much as the gate and the number in flight allow. True: something was issued. `failed`: the process has
  // failed; all launches are dropped.
  bool advance(bool failed);
  // The gate stopped the last advance().
  bool at_gate() const { return at_gate_; }
  // Grid slices have ended, so that advance() may issue more.
  bool moved() const;
  // advance() is to be called again soon, even if nothing happens: persistent blocks may have to be told to stop.
  bool is_watching() const;
  // When advance() is to be called at the latest, even if nothing happens.
  std::chrono::nanoseconds longest_sleep() const;
  // A descriptor that becomes readable when grid slices end.
  int wake() const { return parts_.wake->get(); }

  uint32_t sms() const { return parts_.sms; }  // of the device

 private:
  using Launches = std::list<std::unique_ptr<CutLaunch>>;
  static constexpr size_t kCopiedMost = 1 << 12;  // of further ones launches do not wait for copies

  bool may_enter(const CutLaunch& launch) const;
  bool advance_one(Launches::iterator* at);
  Launches::iterator drop(Launches::iterator at);
  CUresult launch_whole(const LaunchCaller& caller, const StreamRef& stream, const Launch& launch,
                        const std::shared_ptr<LaunchShape>& shape);

  const SlicingSettings settings_;
  StreamOrder& order_;  // has the streams of under_way_
  SlicingStats stats_;
  KernelCloner cloner_;
  KernelCatalogue kernels_;
  StreamTimer timer_;
  ControlBlockPool control_blocks_;
  GridSliceTracksPool tracks_;
  LaunchDescriber describer_;
  Allocations allocations_;  // where blocks may be dropped
  KernelVariants variants_;
  SlicingParts parts_;
  LaunchChooser chooser_;
  Launches under_way_;
  std::unordered_set<uint64_t> copied_;  // streams with copies since their last launch
  bool at_gate_ = false;
};

}  // namespace bandsaw::runner
