// Addresses that a guest process has reserved, and memory that it has created, as numbers, for another runner
// (process_state.h).
#pragma once

#include <cstdint>
#include <vector>

namespace bandsaw::runner {

struct MemoryState {
  uint64_t key = 0, bytes = 0;    // GivesAgain::memory_key()
  std::vector<uint64_t> handles;  // none: the program has released it, and it is still mapped
};

struct MappingState {
  uint64_t address = 0, bytes = 0, offset = 0;
  uint32_t memory = 0;  // the place in the list
  uint32_t access = 0;
};

struct ReservationState {
  uint64_t address = 0, bytes = 0;
  std::vector<MappingState> mappings;
};

struct MappingStates {
  std::vector<MemoryState> memory;
  std::vector<ReservationState> reservations;
};

}  // namespace bandsaw::runner
