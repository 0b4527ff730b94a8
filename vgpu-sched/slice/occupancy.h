// How many blocks lie on an SM: by threads, warps, blocks, registers and shared memory.
//
// Pure functions; any thread. Source: Cruz et al., section 4, algorithm 2 (GetAllocatableBlocksPerSM).
#pragma once

#include "vgpu-sched/slice/types.h"

namespace bandsaw::slice {

// What an SM has left.
struct Room {
  int threads = 0;
  int warps = 0;
  int blocks = 0;
  int registers = 0;
  int shared = 0;
};

// An empty SM.
Room room_of(const GpuModel& gpu);
// How many such blocks fit; never negative.
int fit(const GpuModel& gpu, const Room& room, const BlockNeeds& needs);
// What is left beside `count` such blocks; they must fit.
Room beside(const GpuModel& gpu, const Room& room, const BlockNeeds& needs, int count);
// Blocks on an empty SM; 0: the block can never run.
int resident_blocks(const GpuModel& gpu, const BlockNeeds& needs);
// Bytes of dynamic shared memory to add to a launch so that no more than `count` of its blocks lie on an SM; 0 if none
// are needed. The neighbour cannot use them.
int padding(const GpuModel& gpu, const BlockNeeds& needs, int count);
// The part of an SM, 0 to 1, that so many blocks take of its scarcest resource.
double footprint(const GpuModel& gpu, const BlockNeeds& needs, int count);

}  // namespace bandsaw::slice
