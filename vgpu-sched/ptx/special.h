// What special registers and opcodes mean to a rewriter.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

enum class Special : uint8_t {
  kNone,     // not a special register
  kCtaid,    // index of the block
  kNctaid,   // size of the grid
  kUniform,  // the same in all threads of a block: %ntid, %smid
  kThread,   // anything else: %tid, %laneid, %clock, names that are not known
  kGridid,
  kCluster,      // %clusterid, %cluster_ctarank and their like
  kEnvironment,  // %envreg: where a cooperative launch's barrier lies
};
Special special_of(std::string_view register_name);

enum class Kind : uint8_t {
  kValue,    // registers to registers, nothing else
  kLoad,     // memory to registers
  kStore,    // registers to memory
  kAtomic,   // atom, red
  kCopy,     // memory to memory (cp.async and its like)
  kBarrier,  // of a block's threads, or some of them
  kBranch,   // bra, brx
  kEnd,      // ret, exit, trap
  kCall,
  kFence,    // membar, fence
  kTexture,  // tex, tld4, suld, sust, and queries
  kOther,    // known to touch no memory of the program: nanosleep, pmevent
  kUnknown,
};
Kind kind_of(const Instruction& instruction);

// By this name, with one of these types and no other modifier: add.s64.
bool is_plain(const Instruction& instruction, std::string_view opcode, std::initializer_list<std::string_view> types);

// The instruction's first operand is written by it.
bool has_result(const Instruction& instruction, Kind kind);

// A barrier that all of the block's threads have to come to: no number of threads is given.
bool is_full_barrier(const Instruction& instruction);

// The functions that the driver itself defines in every module.
bool is_driver_function(std::string_view name);

}  // namespace bandsaw::ptx
