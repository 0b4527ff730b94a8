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
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "backend/runner/execution/gate.h"
#include "backend/runner/execution/worker_pool.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/grid_slice_tracks.h"
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

  // What the program loads, looks up and unloads. Any thread.
  void library_loaded(const LibraryRef& library, std::span<const std::byte> image);
  void module_loaded(const ModuleRef& module, std::span<const std::byte> image);
  void managed_bound(const LibraryRef& library, const std::string& name, uint64_t address);
  void kernel_found(const LibraryRef& library, const std::string& name, const KernelRef& kernel);
  void function_found(const ModuleRef& module, const std::string& name, const FunctionRef& function);
  void function_of_kernel(const KernelRef& kernel, const FunctionRef& function);
  void attribute_set(const Code& code);
  void forget_image(const Object* image);  // a library or module
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

  void keep(const Object* object, std::shared_ptr<KernelImage> image);
  void forget_kernels(const KernelImage& image);
  void add(const Object* object, const std::weak_ptr<Object>& alive, const std::shared_ptr<KernelImage>& image,
           const std::string& name);
  KnownKernelRef find(const Code& code);
  std::shared_ptr<LaunchShape> shape_of(KnownKernel& kernel, const Launch& launch);
  KernelVariant wanted_variant(const KnownKernel& kernel, const LaunchShape* shape) const;
  std::shared_ptr<const KernelClone> clone_of(const KnownKernelRef& kernel, const Caller& caller, const Launch& launch,
                                              KernelVariant variant);
  void make(const std::shared_ptr<KernelClonePlace>& place);
  std::shared_ptr<const KernelClone> use(KnownKernel& kernel, KernelClonePlace& place, const Launch& launch);
  void refuse(KnownKernel& kernel, const std::string& reason);
  bool turns_to_grid_slices(KnownKernel& kernel) const;
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
  KernelCloner code_;
  const std::shared_ptr<UniqueFd> wake_;

  struct Known {
    std::weak_ptr<Object> object;  // the same as the key, unless that is gone
    KnownKernelRef kernel;
  };
  std::mutex mutex_;
  std::unordered_map<const Object*, std::shared_ptr<KernelImage>> images_;  // guarded by mutex_; by library or module
  std::unordered_map<const Object*, Known> kernels_;                        // guarded by mutex_; their clones too

  StreamTimer timer_;
  ControlBlockPool control_blocks_;
  GridSliceTracksPool tracks_;
  std::list<Run> runs_;
  bool at_gate_ = false;
  uint64_t calls_ = 0;    // that were described
  WorkerPool worker_{1};  // finishes before the rest goes
};

}  // namespace bandsaw::runner
