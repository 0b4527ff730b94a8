// How plans of a device are made.
#pragma once

#include "backend/vgpud/config.h"

namespace bandsaw {

// For the arbiter of `device`, one of the configured ones.
PlanOptions plan_options(const Config& config, const PhysicalDevice& device);

}  // namespace bandsaw
