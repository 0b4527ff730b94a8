// Speeds of pairs of kernels measured ahead (tools/bench mps), for the mode that chooses by them; and how the plans
// of this device are made.
#pragma once

#include <string>
#include <vector>

#include "backend/vgpud/config.h"

namespace bandsaw {

// A JSON file: {"pairs": [{"a": NAME, "b": NAME, "resident_a": N, "resident_b": N, "speed_a": X, "speed_b": X}]}. Names
// are the kernels' own, blocks those on an SM, speeds relative to each kernel alone. ENOENT, EINVAL with the reason.
Result<std::vector<PairProfit>> load_profits(const std::string& path);

// For the arbiter of the configured device, which is known by then.
Result<PlanOptions> plan_options(const Config& config);

}  // namespace bandsaw
