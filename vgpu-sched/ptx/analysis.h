// What a kernel's text says about it: may it be cut, may it be run again, what is it made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/program.h"

namespace bandsaw::ptx {

// Instructions by kind. Inside of a loop of unknown length an instruction counts ten times, in a loop of that a
// hundred times, up to a million; so these are weights, not counts. Called functions are added at each call.
struct InstructionMix {
  double float32 = 0, float64 = 0, half = 0, matrix = 0, integer = 0, special = 0, move = 0;
  double load_global = 0, store_global = 0, load_shared = 0, store_shared = 0, load_local = 0, store_local = 0;
  double load_constant = 0, texture = 0, atomic = 0, branch = 0, barrier = 0, other = 0;
  double load_global_bytes = 0, store_global_bytes = 0;  // per thread, a generic address taken as global
  double scattered = 0;  // of load_global, store_global and atomic: lanes ask for bytes that are no neighbours
  double total() const;  // of the instructions
};

enum class Spin : uint8_t {
  kNone,
  kLowerBlocks,  // polls a place that depends on the block's index or ticket, against constants: a look-back, which
                 // blocks in linear order survive
  kAny,          // may wait for a block that comes later: never sliced
};

// How blocks of a grid may depend on each other, as far as their order goes.
enum class InterBlockDependency : uint8_t {
  kNone,         // not at all: any order will do
  kLowerBlocks,  // fences with atomics, or a look-back: those of lower index are to begin first
  kAny,          // they look at memory that others may write meanwhile: possibly one waits for any other
};

enum class Idempotence : uint8_t {
  kNo,          // atomics, or reads what it may write
  kIfDisjoint,  // yes, if no memory that is read through `reads` is written through `writes`
  kYes,
};

struct Analysis {
  std::string name;
  std::string not_sliceable;     // why slice() refuses; "": it does not
  std::string not_persistent;    // the same for persistent()
  bool order_dependent = false;  // fences and atomics: blocks may hand data to later ones
  Spin spin = Spin::kNone;
  InterBlockDependency dependency = InterBlockDependency::kNone;

  Idempotence idempotence = Idempotence::kNo;
  std::string not_idempotent;                                // why, for people
  std::vector<size_t> reads, writes;                         // kIfDisjoint: byte offsets of 64-bit pointer parameters
  std::vector<std::string> variable_reads, variable_writes;  // module variables that are read and written

  InstructionMix instruction_mix;
  uint64_t parameter_bytes = 0, static_shared_bytes = 0;
  bool dynamic_shared = false, prints = false, allocates = false, calls_by_pointer = false;
  bool reads_block_index_yz = false;  // else one division less per block
};

// Of a kernel that there is; cheaper than all of the analysis.
InterBlockDependency inter_block_dependency_of(const Program& program, std::string_view kernel);

// The same of its instructions.
InstructionMix instruction_mix_of(const Program& program, std::string_view kernel);

// Empty name: no such kernel.
Analysis analyse(const Program& program, std::string_view kernel);

}  // namespace bandsaw::ptx
