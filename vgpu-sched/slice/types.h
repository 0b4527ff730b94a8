// The words of co-scheduling: the GPU, a kernel's needs and profile, times, errors.
//
// Sources: Kernelet (Zhong and He, TPDS 2014), sections 2.2 and 4.3; for a block's needs, Cruz et al., section 4.
#pragma once

#include <cstdint>
#include <string_view>

namespace bandsaw::slice {

// Nanoseconds, of any clock that does not run backwards; the caller brings it.
using Time = std::int64_t;
inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;

using Blocks = std::uint64_t;
// A call of a kernel. Chosen by the caller; unique among those that are not over.
using KernelId = std::uint64_t;
// A stream of a virtual GPU. Chosen by the caller; unique among all virtual GPUs.
using StreamId = std::uint64_t;
// A kernel with its block size, dynamic shared memory and, where that is below a wave, grid: what profiles are kept
// for. Given by CoRunModel::add().
using ShapeId = std::uint32_t;
inline constexpr ShapeId kNoShape = ~ShapeId{0};

// The first group: per SM. The values are an H200's.
struct GpuModel {
  int threads = 2048;
  int warps = 64;
  int blocks = 32;
  int registers = 65536;
  int register_unit = 8;    // registers of a thread are given out in steps of so many
  int shared = 233472;      // bytes
  int shared_block = 1024;  // bytes which every block takes beside its own
  int schedulers = 4;       // each with one instruction per cycle: a virtual SM is an SM divided by them

  int sms = 132;
  double clock = 1.98;      // cycles per nanosecond; measured on an H200
  double bandwidth = 4500;  // bytes per nanosecond; measured on an H200: 4457
  double latency = 700;     // cycles (660 measured on an H200) of a coalesced access that finds no other in its way
  // The same of one that touches 32 sectors: measured 226 cycles more, as one warp alone has it. (Of 4 warps on each SM
  // it takes 1269, but these have half the bandwidth that random sectors have.)
  double latency_uncoalesced = 900;
  double dependency = 3;         // cycles that a warp waits after an instruction (4.3 from one to the next, measured
                                 // on an H200)
  double bytes_coalesced = 128;  // of one warp's access
  double bytes_uncoalesced = 32 * 32;  // a sector for each lane

  int virtual_sms() const { return sms * schedulers; }
};

// What one block takes of an SM.
struct BlockNeeds {
  int threads = 1;
  int registers = 0;  // per thread
  int shared = 0;     // bytes, static and dynamic

  int warps() const { return threads / 32 + (threads % 32 != 0 ? 1 : 0); }
};

// What is known of a shape. Nothing is assumed that can be measured: 0 where it says so means "not known yet".
struct KernelProfile {
  BlockNeeds needs;  // from the function's attributes and the launch
  // Solo time of the GPU per block at full occupancy: measured time of the kernel, or of back-to-back grid slices while
  // nothing else ran, divided by their blocks. Above 0.
  double block_ns = 0;
  // From the static instruction mix (vgpu-sched/ptx analysis), weighted by loops where it knows them:
  double memory = 0.1;     // accesses of global memory, of all instructions
  double uncoalesced = 0;  // of those: accesses whose address is not affine in the lane, or strided
  // Warp instructions of a block: from the instruction mix where trip counts are known, or from a counter; 0: not
  // known.
  double instructions = 0;
  // Achieved solo: bytes of the accesses by the instruction mix, divided by the measured time; 0: not known.
  double bytes_per_ns = 0;
  // Speed alone with half the blocks on each SM, relative to full occupancy (0.5 to 1): measured with grid slices of
  // half a wave, one at a time; 0: not known. Tells a kernel that is full of waits from one that has used up a resource
  // where its instructions are not known.
  double half_speed = 0;
  // The same with one block on each SM; 0: not known. How long a warp waits if nobody is in its way, also of a kernel
  // that half the blocks keep as busy as all.
  double one_speed = 0;
  // Blocks on each SM while that was measured, where the grid was too small for more; 0: as many as fit. Such launches
  // are a shape of their own.
  int most_resident = 0;
};

enum class Error : std::uint8_t {
  kNone,
  kKnownKernel,       // arrived twice
  kUnknownKernel,     // no such call, or it is over
  kUnknownGridSlice,  // done without being in flight
  kNoBlocks,          // a call of no blocks
  kBadProfile,        // no time, no threads, or a block that fits no SM
  kFull,              // the bound on calls or shapes is reached
};

std::string_view describe(Error error);

}  // namespace bandsaw::slice
