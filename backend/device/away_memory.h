// Memory of a process that has left its device for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bandsaw {

struct AwayMemory {
  uint64_t address = 0;        // where programs have it, or GivesAgain::memory_key()
  std::span<std::byte> pages;  // where it lies now
};

}  // namespace bandsaw
