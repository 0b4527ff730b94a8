// Whether a block of a kernel may be dropped while it runs and be run again from its start, with the same result as if
// it had run once: always, or until it first does what cannot be done again.
//
// Pure; any thread. Source: Park, "Enabling efficient resource utilization on multitasking throughput processors",
// sections 4.2.3 (strict) and 4.3.4 (relaxed). Careful where the text does not say: what may be wrong is "no".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/program.h"

namespace bandsaw::ptx {

struct BlockIdempotence {
  // Why a block may not be run again at every moment; "": it may, if disjoint() says so of the launch.
  std::string not_strict;
  // What must not lie in the same memory then: byte offsets of 64-bit pointer parameters. Memory that the program calls
  // constant counts as read: it may be wrong about that, and right by luck.
  std::vector<size_t> reads, writes;
  // Module variables that are read, or written, besides.
  bool reads_variables = false, writes_variables = false;

  // Why a block may not even be run again before it comes to the first of `irreversible`; "": it may, whatever the
  // pointers are.
  std::string not_relaxed;
  // Instructions of the kernel's own body (of Program::module()), in the order of the text: atomic operations, what
  // others may see or change meanwhile, and stores that may overwrite what the block reads.
  std::vector<const Instruction*> irreversible;
};

// Of a kernel that there is; the pointers in it are into the program.
BlockIdempotence block_idempotence(const Program& program, std::string_view kernel);

struct MemoryRange {
  uint64_t begin = 0, end = 0;
};
// The allocation that an address lies in; none: it is not known.
using FindRange = std::function<std::optional<MemoryRange>(uint64_t address)>;

// Nothing that a launch with these parameters reads lies in the same allocation as what it writes. No: a pointer's
// memory is not known. Null pointers are no memory.
bool disjoint(const BlockIdempotence& block, std::span<const std::byte> parameters, const FindRange& find_range);

}  // namespace bandsaw::ptx
