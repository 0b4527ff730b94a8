// What is known of one kernel of the process: how long its launches take, and what became of rewriting it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/runner/slicing/grid_slice_size.h"
#include "backend/runner/slicing/kernel_cloner.h"
#include "vgpu-sched/slice/persistent_tuner.h"

namespace bandsaw::runner {

// What a block does, as a counted grid slice had it; 0 instructions: not known.
struct BlockCounts {
  uint64_t instructions = 0;  // of its warps, in PTX
  uint64_t bytes = 0;         // of global memory that its threads ask for
  double accesses = 0;        // of global memory, of all instructions
};

// Launches of one size.
struct LaunchShape {
  std::array<uint32_t, 7> key{};  // grid, block, dynamic shared memory
  uint64_t blocks = 0, wave = 0;  // wave: blocks that are resident at once
  uint64_t launches = 0;
  uint64_t typical_ns = 0;  // of its launches; 0: not measured yet
  GridSliceSize size;
  slice::PersistentTuner persistent_tuner;
  BlockCounts counts;
  bool counted = false;  // a launch was to be
  bool paired = false;   // others were planned beside its last launch
  uint32_t alone = 0;    // launches that asked to be, in this search

  // `sms`: of the device.
  LaunchShape(const Launch& launch, uint64_t its_blocks, uint64_t its_wave, uint32_t sms);
  static std::array<uint32_t, 7> key_of(const Launch& launch);
  void learn_whole(uint64_t nanoseconds);
  // Whether the next launch is to run alone, where that is planned: what is best for it is still being searched for,
  // and has not been for long.
  bool wants_alone();
  // In grid slices of so many blocks, 0 if that was not what it took so long for; or in a way that
  // persistent_tuner.next() said.
  void learn_cut(uint64_t slice, std::optional<int> tuned_blocks, uint64_t nanoseconds);
};

// A rewritten kernel that is ready, or will be, or will never be.
struct KernelClonePlace {
  CloneRequest request;
  enum class State { kMaking, kReady, kRefused };
  std::atomic<State> state{State::kMaking};
  std::shared_ptr<const KernelClone> clone;  // when ready, and the next two belong to the record loop
  std::string refusal;
  uint32_t attributes = 0;  // KnownKernel::attributes as they were last taken over
};

// The record loop's, but for `attributes`. Outlives its library, but cannot be launched any more.
struct KnownKernel {
  std::string name;
  std::shared_ptr<KernelImage> image;
  std::atomic<uint32_t> attributes{0};  // counts how often the guest set some

  bool whole = false;                       // for ever
  bool only_grid_slices = false;            // it cannot have persistent blocks
  bool counted = false, sliceable = false;  // in the usage page
  bool cut = false;                         // the device has taken grid slices of it
  bool in_order = false;                    // a launch has come through in grid slices, one after the other
  std::set<std::string> reasons;
  std::vector<std::shared_ptr<LaunchShape>> shapes;
  std::vector<std::shared_ptr<KernelClonePlace>> clones;  // guarded by the slicer's mutex

  // Null: that many shapes were seen that it is not worth while.
  std::shared_ptr<LaunchShape> find_shape(const Launch& launch) const;
  std::shared_ptr<KernelClonePlace> find_clone(const Context* context, bool one_dimensional,
                                               KernelVariant variant) const;
};

using KnownKernelRef = std::shared_ptr<KnownKernel>;

}  // namespace bandsaw::runner
