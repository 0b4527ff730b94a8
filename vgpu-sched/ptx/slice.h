// A kernel that runs a part of its grid: block indices start where the caller says, the grid's size is as launched.
//
// The rewritten kernel is a module of its own with the functions that it calls and nothing mutable: the driver loads it
// beside the original, whose variables it goes on to use. Launch a grid slice as a one-dimensional grid of n blocks,
// block dimensions and dynamic shared memory as the original's: block i of it does what block (first + i), counted in
// linear order (x fastest), of the original grid does. Grid slices in order keep the order of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vgpu-sched/ptx/program.h"

namespace bandsaw::ptx {

// When persistent blocks may drop the block that they run, to run it again (idempotence.h says which of these is
// right).
enum class Flush : uint8_t {
  kNo,
  kAlways,
  kUntilIrreversible,  // until one of its threads first stores, or does what cannot be done again
};

struct SlicingOptions {
  // Only for grids with y = z = 1: no division at all.
  bool one_dimensional = false;
  // Grid slices only: they count what their threads do.
  bool counts = false;
  // Persistent blocks only.
  Flush flush = Flush::kNo;
  // Persistent blocks only, and only those that drop nothing: they count themselves on each SM, and leave where a limit
  // says so.
  bool limited = false;
  // Persistent blocks only, and only those that are not limited: each says where it is and since when, and can be told
  // to stop by itself, so that the caller can free single SMs.
  bool told_apart = false;
};

// What the threads of counted grid slices have done, as their text has it, all added up: instructions, accesses of
// global memory (a generic address taken for one), bytes of these but atomics. What a function that is called does is
// not counted but taken from its text, loops as ten rounds.
struct CountsOfBlocks {
  uint64_t instructions = 0, accesses = 0, bytes = 0;
};

// Every `..._at` is a byte offset in the packed parameter block, which begins with the original parameters unchanged.
// Little-endian, naturally aligned.
struct SlicedKernel {
  std::string text;      // PTX of the module
  std::string name;      // of the kernel in it: the original's
  size_t first_at = 0;   // 3 x u32: x y z of the grid slice's first block; block_at() makes them of a linear index
  size_t grid_at = 0;    // 3 x u32: the grid as launched, x y z
  size_t counts_at = 0;  // u64: address of CountsOfBlocks in device memory, if they are counted
  size_t parameter_bytes = 0;  // all of the block
  std::vector<BorrowedVariable> variables;
};

// The linear index of a block to what is written at `first_at`. The grid's sizes are at least 1.
constexpr std::array<uint32_t, 3> block_at(uint64_t linear, const std::array<uint32_t, 3>& grid) {
  const uint64_t row = linear / grid[0];
  return {static_cast<uint32_t>(linear % grid[0]), static_cast<uint32_t>(row % grid[1]),
          static_cast<uint32_t>(row / grid[1])};
}

using SlicingResult = std::variant<SlicedKernel, Refusal>;

// Pure; linear in the size of the kernel and of what it calls. `kernel` as the module names it.
// What it makes is to be compiled: if the compiler refuses it, the original has to run.
SlicingResult slice(const Program& program, std::string_view kernel, const SlicingOptions& options = {});

}  // namespace bandsaw::ptx
