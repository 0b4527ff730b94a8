// Who is told which runner has which slot of the usage page.
#pragma once

#include <cstdint>

#include "backend/session/runner.h"

namespace bandsaw {

class RunnerSlots {
 public:
  virtual ~RunnerSlots() = default;
  // Before the runner is assigned. It stays valid until `left`.
  virtual void taken(uint32_t slot, Runner* runner) = 0;
  // The runner is reaped.
  virtual void left(uint32_t slot) = 0;
};

}  // namespace bandsaw
