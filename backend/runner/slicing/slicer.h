// Cuts launches of long kernels into grid slices: parts of the grid, in order, each a launch of a rewritten kernel and
// a time slice of its own at the gate, so that others get the engine in between.
//
// The slicer measures a few launches of each kernel. One that takes long is rewritten (KernelCloner) on a thread of its
// own; until that is done, or if it cannot be done, the kernel runs whole. Instead of grid slices a launch may be
// persistent blocks (slicer_persistent.cc). While a launch is under way, records that may depend on it wait (Process):
// to the program it is one launch.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>

#include "backend/runner/execution/gate.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
#include "backend/runner/slicing/kernel_catalogue.h"
#include "backend/runner/slicing/kernel_cloner.h"
#include "backend/runner/slicing/kernel_variants.h"
#include "backend/runner/slicing/known_kernel.h"
#include "backend/runner/slicing/slicing_settings.h"
#include "backend/runner/slicing/slicing_stats.h"
#include "backend/runner/slicing/stream_timer.h"
#include "backend/runner/wire/command_ring.h"
#include "backend/runner/wire/stream_order.h"

namespace bandsaw::runner {

class Slicer {
 public:
  // All arguments outlive the slicer. Grid slices on the device may outlive it too.
  Slicer(Device* device, GateView* gate, UsagePageView* usage_page, StreamOrder* order,
         const SlicingSettings& settings);
  ~Slicer();

  bool enabled() const { return settings_.enabled; }

  // What the program loads, looks up and unloads goes here. Any thread, as forget_context.
  KernelCatalogue& kernels() { return kernels_; }
  void forget_context(const Context* context);

  // All that follows is called on the record loop's thread.
  struct Caller {
    std::shared_ptr<CommandRing> ring;  // gets errors of later grid slices
    ContextRef context;
    uint64_t stream_key = 0;
    bool may_capture = false;  // some stream of the process captures, or did
  };
  // Launches the kernel whole, or begins to launch it in grid slices or as persistent blocks. Call it after the gate
  // has let the launch pass.
  CUresult launch(const Caller& caller, const StreamRef& stream, const Launch& launch);
  // Some launch has blocks that are not issued yet.
  bool busy() const { return !runs_.empty(); }
  bool holds(const CommandRing& ring) const;
  // Issues as much as the gate and the number in flight allow. True: something was issued. `failed`: the process has
  // failed; all launches are dropped.
  bool advance(bool failed);
  // The gate stopped the last advance().
  bool at_gate() const { return at_gate_; }
  // Grid slices have ended, so that advance() may issue more.
  bool moved() const;
  // advance() is to be called again soon, even if nothing happens: persistent blocks may have to be told to stop.
  bool watches_for_stalls() const;
  // When advance() is to be called at the latest, even if nothing happens.
  std::chrono::nanoseconds longest_sleep() const;
  // A descriptor that becomes readable when grid slices end.
  int wake() const { return wake_->get(); }

 private:
  struct Flight;
  struct Run;

  std::shared_ptr<LaunchShape> shape_of(KnownKernel& kernel, const Launch& launch);
  KernelVariant wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const;
  std::string refusal(const Caller& caller, const StreamRef& stream, const Launch& launch);
  bool is_long(const LaunchShape& shape) const;
  CUresult launch_whole(const Caller& caller, const StreamRef& stream, const Launch& launch,
                        const std::shared_ptr<LaunchShape>& shape);
  CUresult begin(const Caller& caller, const StreamRef& stream, const Launch& launch, const KnownKernelRef& kernel,
                 const std::shared_ptr<LaunchShape>& shape, const std::shared_ptr<const KernelClone>& clone);
  void use_clone(Run& run, const std::shared_ptr<const KernelClone>& clone);
  void lay_tracks(Run& run);
  uint64_t next_blocks(Run& run) const;
  CUresult issue(Run& run, uint64_t blocks);
  void note_issued(Run& run, size_t track);
  void measure(Run& run);
  void learn(Run& run);
  void finish(Run& run);
  std::chrono::nanoseconds stall_timeout(const Run& run) const;
  bool is_stalled(Run& run);
  bool claims(Run& run);
  CUresult peek(Run& run, std::function<void()> done);
  void issue_rest(Run& run);
  void issue_more_persistent(Run& run);
  std::string prepare_persistent(Run& run);
  bool may_turn_persistent(const Run& run) const;
  void change_variant(Run& run);
  void begin_counted(Run& run, const Launch& launch);
  CUresult issue_counted(Run& run, uint64_t most);
  static void take_counts(Run& run);
  uint64_t best_persistent(Run& run) const;
  CUresult allow_claims(Run& run, const StreamRef& stream);
  CUresult issue_persistent(Run& run);
  static bool is_watched(const Run& run);
  void watch_end(Run& run);
  bool advance_persistent(Run& run, bool* any);
  KernelDescriptor descriptor_of(const Run& run) const;
  void describe(Run& run);
  void report(const Run& run, uint64_t claimed);
  void withdraw(const Run& run);
  uint64_t granted_blocks(Run& run) const;
  void take_persistent(Run& run);
  bool is_replanned(const Run& run) const;
  bool waits_for_plan(const Run& run);
  std::chrono::nanoseconds turn(const Run& run) const;
  void tell_to_stop(Run& run);

  Device& device_;
  GateView& gate_;
  UsagePageView& usage_page_;
  StreamOrder& order_;  // has the streams of runs_
  const SlicingSettings settings_;
  SlicingStats stats_;
  const vgpu_device_info info_;
  const uint32_t sms_;
  KernelCloner cloner_;
  KernelCatalogue kernels_;
  const std::shared_ptr<UniqueFd> wake_;
  StreamTimer timer_;
  ControlBlockPool control_blocks_;
  GridSliceTracksPool tracks_;
  std::list<Run> runs_;
  bool at_gate_ = false;
  uint64_t calls_ = 0;  // that were described
  KernelVariants variants_;
};

}  // namespace bandsaw::runner
