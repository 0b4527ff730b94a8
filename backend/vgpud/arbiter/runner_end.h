// A runner that is to be ended, because it has gone too far.
#pragma once

#include <string>

#include "backend/control/gate_link.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw {

struct RunnerEnd {
  std::string vgpu;
  uint32_t slot = 0;
  RunnerEndReason reason{};
  sched::Time since = 0;  // of one that was there before this
};

}  // namespace bandsaw
