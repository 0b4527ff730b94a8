// Speeds of pairs of kernels measured ahead (tools/bench mps), for the planning mode that chooses by them.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::research {

// Speeds of two kernels beside each other, relative to each alone, by the names that runners describe them with.
struct PairProfit {
  std::string a, b;
  int resident_a = 0, resident_b = 0;  // blocks on each SM
  double speed_a = 0, speed_b = 0;
};

// A JSON file: {"pairs": [{"a": NAME, "b": NAME, "resident_a": N, "resident_b": N, "speed_a": X, "speed_b": X}]}.
// ENOENT, EINVAL with the reason.
Result<std::vector<PairProfit>> load_profits(const std::string& path);

}  // namespace bandsaw::research
