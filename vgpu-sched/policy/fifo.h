// First come, first served: no shares at all. What the others are measured against.
#pragma once

#include "vgpu-sched/policy/policy.h"

namespace bandsaw::sched {

class Fifo : public Policy {
 public:
  Decision decide(const State& state, Time now) override;
};

}  // namespace bandsaw::sched
