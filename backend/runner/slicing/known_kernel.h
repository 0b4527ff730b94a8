// What is known of one kernel of the process: how long its launches take, and what became of rewriting it.
#pragma once

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/runner/slicing/grid_slice_size.h"
#include "backend/runner/slicing/kernel_cloner.h"
#include "vgpu-sched/slice/persistent_tuner.h"

namespace bandsaw::runner {

// What the code of a kernel takes of an SM for a block.
struct BlockCode {
  uint32_t registers = 0, shared_bytes = 0;
};

// What one block does, as a grid slice has counted it. 0 instructions: not known.
struct BlockCounts {
  uint64_t instructions = 0;  // of its warps, in PTX
  uint64_t bytes = 0;         // of global memory that its threads ask for
  double accesses = 0;        // of global memory, of all instructions
};

// What is known of the launches of one kernel with the same grid, block and dynamic shared memory.
struct LaunchShape {
  std::array<uint32_t, 7> key{};  // grid, block, dynamic shared memory
  uint64_t blocks = 0, wave = 0;  // wave: blocks that are resident at once
  uint64_t launches = 0;
  uint64_t typical_ns = 0;  // what a launch takes, as a moving mean; 0: not measured yet
  GridSliceSize size;
  slice::PersistentTuner persistent_tuner;
  BlockCounts counts;
  bool counted = false;  // a launch has begun with a grid slice that counts
  bool paired = false;   // others were planned beside its last launch
  uint32_t alone = 0;    // launches that asked to run alone since the tuner's search began

  // `sms`: of the device.
  LaunchShape(const Launch& launch, uint64_t its_blocks, uint64_t its_wave, uint32_t sms);
  static std::array<uint32_t, 7> key_of(const Launch& launch);
  void learn_whole(uint64_t nanoseconds);
  // What a block takes, if the device has room for a whole wave.
  uint64_t block_ns() const { return blocks == 0 ? 0 : typical_ns / ((blocks + wave - 1) / wave); }
  // Whether the next launch asks to run alone: the tuner still searches, and has not searched for long.
  bool wants_alone();
  // A rewritten launch took so long. `slice`: in grid slices of so many blocks; 0: do not judge that size by it.
  // `tuned_blocks`: with as many persistent blocks as the tuner's next() said; none: do not tell the tuner.
  void learn_cut(uint64_t slice, std::optional<int> tuned_blocks, uint64_t nanoseconds);
};

// The place of a rewritten kernel: it is being made, or is ready, or cannot be made.
struct KernelClonePlace {
  CloneRequest request;
  enum class State { kMaking, kReady, kRefused };
  std::atomic<State> state{State::kMaking};
  std::shared_ptr<const KernelClone> clone;  // kReady
  std::string refusal;                       // kRefused: why
  uint32_t attributes = 0;                   // the record loop's: KnownKernel::attributes when they were last copied
};

// Used on the record loop's thread only, but for `attributes` and its clones. May outlive its library; it is not
// launched then any more.
class KnownKernel {
 public:
  std::string name;
  std::shared_ptr<KernelImage> image;
  std::atomic<uint32_t> attributes{0};  // how often the guest has set a function attribute

  bool whole = false;             // it is never cut again
  bool only_grid_slices = false;  // it cannot run as persistent blocks
  bool counted = false;           // it is in SlicingCounters::kernels
  bool sliceable = false;         // and in SlicingCounters::sliceable
  bool cut = false;               // the device has taken grid slices of it
  bool in_order = false;          // a launch has ended in grid slices that were issued one after the other
  std::set<std::string> reasons;
  // Through which parameters it reaches memory; not valid: nobody has asked.
  std::shared_future<ptx::PointerParameters> pointers;
  std::vector<std::shared_ptr<LaunchShape>> shapes;

  // `code`: the kernel's own. Nothing: the device does not say.
  std::optional<BlockCode> block_code(Device& device, const Code& code);
  // Null: no launch of that shape is remembered.
  std::shared_ptr<LaunchShape> find_shape(const Launch& launch) const;
  // The place of what is asked for, and whether this made it. Any thread, as the next.
  std::pair<std::shared_ptr<KernelClonePlace>, bool> clone_place(const CloneRequest& request);
  // Moves the places of that context to `gone`.
  void forget_clones(const Context* context, std::vector<std::shared_ptr<KernelClonePlace>>* gone);

 private:
  std::optional<BlockCode> block_code_;
  uint32_t block_code_at_ = 0;  // `attributes` then
  std::mutex mutex_;
  std::vector<std::shared_ptr<KernelClonePlace>> clones_;  // guarded by mutex_
};

using KnownKernelRef = std::shared_ptr<KnownKernel>;

}  // namespace bandsaw::runner
