// A kernel in persistent blocks: each claims one block of the original grid after another from a counter, until there
// are no more, or until it is told to stop; the counter then says where to go on.
//
// A module of its own, as in slice.h. Launch as many blocks as are to be resident, as a one-dimensional grid, block
// dimensions and dynamic shared memory as the original's. Its blocks have claimed the blocks below the counter, in
// linear order, and complete each that they claimed; every block claims once more when nothing is left, so the counter
// may end at (blocks of the grid + persistent blocks). To go on: the same counter in a new launch.
//
// With SlicingOptions::flush, a stop word of kStopAndDrop makes blocks drop what they run where they pass a branch
// back, within sixteen passes, or where their threads meet at a barrier, within four; each puts its block on a list,
// from which the next launch claims first.
//
// With SlicingOptions::limited, each block takes a number on its SM when it begins: how many of the kernel's are there.
// One whose number is not below the limit leaves before it claims another block, so that the number on each SM can be
// made smaller while they run; to make it larger, more of them are launched beside them with the same counters. With a
// limit of at least 1, an SM that has any of them keeps one until the grid's end. Source: Bashizade et al., "Adaptive
// simultaneous multi-tenancy for GPUs", section 3.4 and figure 5 (there `block_index` and `max_blocks`).
//
// With SlicingOptions::told_apart, each block has a place: its index in its launch, plus `first_place`. There it stamps
// when it has claimed (BlockStamp), and finds a stop word of its own beside that of all. Source: Park, "Enabling
// efficient resource utilization on multitasking throughput processors", section 4.3: which SMs to take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::ptx {

// Larger grids are cut into grid slices; so the counter never wraps.
inline constexpr uint32_t kMaxPersistentBlocks = 1u << 31;

// What the stop word says.
inline constexpr uint32_t kStopClaiming = 1, kStopAndDrop = 2;

// The list of dropped blocks, in device memory: this, then a power of two of u32, at least twice as many as persistent
// blocks are ever launched. Indices count on and wrap. All zeros before the first launch, whose `redo_end` is 0.
// `taken` may go past a launch's `redo_end`, as several blocks find its last places at once: before the next launch the
// caller puts it back to that, and then `redo_end` to `added`. The grid is done when the counter is at its end and
// `taken`, put back, is at `added`.
struct RedoList {
  uint32_t taken = 0, added = 0;
};

// Counters by SM; SMs whose numbers differ by a multiple of it share one.
inline constexpr uint32_t kSmCounters = 1024;

// Places of blocks that are told apart. In device memory: a stamp for each, then a stop word (u32) for each.
inline constexpr uint32_t kBlockPlaces = 1 << 13;
inline constexpr uint64_t kBlockStopsAt = kBlockPlaces * sizeof(uint64_t);
inline constexpr uint64_t kBlockPlacesBytes = kBlockStopsAt + kBlockPlaces * sizeof(uint32_t);

// Low half: when the block has claimed what it runs, in units of 1024 ns, wrapping; high half: the SM.
using BlockStamp = uint64_t;
inline constexpr BlockStamp kNoBlock = ~uint64_t{0};  // it has left, or has not begun
inline constexpr uint32_t kStampShift = 10;           // from %globaltimer

// Offsets as in SlicedKernel.
struct PersistentKernel {
  std::string text, name;
  size_t counter_at = 0;       // u64: address of a u32, the next block to claim; 0 before the first launch
  size_t stop_at = 0;          // u64: address of a u32 (device or mapped host memory); not 0: claim no more
  size_t blocks_at = 0;        // u32: blocks of the grid as launched, at most kMaxPersistentBlocks
  size_t grid_at = 0;          // 3 x u32: the grid as launched
  size_t redo_at = 0;          // with flush: u64: address of the RedoList
  size_t redo_end_at = 0;      // with flush: u32
  size_t redo_mask_at = 0;     // with flush: u32, places of the list less one
  size_t sm_counters_at = 0;   // with limited: u64: address of kSmCounters u32; 0 before the first launch
  size_t limit_at = 0;         // with limited: u64: address of a u32 in device memory, blocks on each SM
  size_t places_at = 0;        // with told_apart: u64: address of the stamps and stop words
  size_t first_place_at = 0;   // with told_apart: u32
  size_t polls = 0;            // places where blocks may drop what they run; 0: in vain
  size_t parameter_bytes = 0;  // all of the block
  uint64_t shared_bytes = 0;   // static shared memory that it needs beyond the original's
  bool whole_warps = false;    // only for blocks of x a multiple of 32, or y = z = 1
  std::vector<BorrowedVariable> variables;
};

using PersistentResult = std::variant<PersistentKernel, Refusal>;

// Pure, near linear. Beyond what cannot be sliced it refuses kernels whose threads may leave while others still meet
// at a barrier, as a left thread would have to be counted out there. With flush also those whose threads meet, or
// use shared memory, and have no barrier of the whole block to leave at, or would leave a copy or another barrier
// half done.
PersistentResult persistent(const Program& program, std::string_view kernel, const SlicingOptions& options = {});

}  // namespace bandsaw::ptx
