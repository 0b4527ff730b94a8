// What a guest process has beside the contents of its memory, as bytes: enough for a runner that has nothing to become
// what another one was. Whoever reads it believes none of it.
#pragma once

#include <cuda.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/runner/saved/graph_state.h"
#include "backend/runner/saved/journal.h"
#include "backend/runner/saved/mapping_state.h"
#include "backend/runner/wire/command_ring.h"
#include "memory/base/status.h"

namespace bandsaw::runner {

struct RingState {
  uint32_t id = 0;
  CommandRing::State state;
  std::vector<std::byte> pending;  // a record that was taken and whose turn it is not; empty: none
};

// Of its device, what programs have been told and may rely on.
struct ToldDevice {
  int32_t sms = 0, capability_major = 0, capability_minor = 0;
  bool operator==(const ToldDevice&) const = default;
};

// Variables of code that lie where the device has put them: a library's or module's handle, and each variable.
struct CodeState {
  uint64_t handle = 0;
  std::vector<VariableAgain> variables;
};

struct ProcessState {
  ToldDevice told;
  uint64_t window_base = 0;
  uint32_t part = 0;
  CUresult sticky = CUDA_SUCCESS;
  uint64_t last_seq = 0;
  std::string output;                                 // that kernels have printed and nobody has fetched
  std::vector<uint32_t> generations;                  // HandleTable::generations()
  std::vector<JournalEntry> calls;                    // to be made again, in order
  MappingStates mappings;                             // before the calls
  std::vector<CodeState> code;                        // once the calls are made
  std::vector<std::pair<uint64_t, HeapAgain>> heaps;  // of contexts; after the calls
  GraphStates graphs;                                 // after these
  std::vector<std::pair<uint64_t, int64_t>> events;   // how long ago they were recorded, in nanoseconds
  std::vector<RingState> rings;
  std::vector<std::pair<uint32_t, std::vector<std::byte>>> waiting;  // records by their rings, in order
};

std::vector<std::byte> to_bytes(const ProcessState& state);
// EPROTO: it is of another release, or damaged.
Result<ProcessState> read_process_state(std::span<const std::byte> bytes);

}  // namespace bandsaw::runner
