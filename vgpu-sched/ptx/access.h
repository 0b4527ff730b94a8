// Which global memory a kernel reads and writes. Inside of this folder only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/analysis.h"
#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

// One instruction's access to global memory, or to who knows what.
struct GlobalAccess {
  enum class Kind : uint8_t {
    kRead,
    kWrite,
    kOnce,  // it cannot be done again: an atomic operation, output, something of unknown effect
  };
  enum class Place : uint8_t { kUnknown, kParameter, kVariable };
  const Instruction* instruction = nullptr;
  uint32_t function = 0;
  Kind kind = Kind::kRead;
  Place place = Place::kUnknown;
  size_t at = 0;          // byte offset of the pointer parameter, or index of the module's variable
  bool constant = false;  // the program promises that nothing writes there during the launch
  bool strong = false;    // volatile or ordered: others may look at it, or change it, meanwhile
  std::string reason;     // kOnce: in words
};

// Of a kernel and all that it calls, in the order of the text.
std::vector<GlobalAccess> global_accesses(const ProgramFacts& facts, const Closure& closure);

// Sets idempotence, the reason and the lists of what is read and written.
void find_accesses(const ProgramFacts& facts, const Closure& closure, Analysis* analysis);

}  // namespace bandsaw::ptx
