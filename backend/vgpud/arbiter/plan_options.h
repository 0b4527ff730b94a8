// How plans of the configured device are made.
#pragma once

#include "backend/vgpud/config.h"

namespace bandsaw {

// For the arbiter of the configured device, which is known by then.
PlanOptions plan_options(const Config& config);

}  // namespace bandsaw
