// Whether NVIDIA's compiler takes what the rewriters make.
#pragma once

#include <string>
#include <vector>

namespace bandsaw::tools {

struct CheckResult {
  size_t kernels = 0, compiled = 0, refused = 0;
  std::vector<std::string> failures;  // "fatbin 1 (sm_75), name, sliced: ptxas exit status 1"
};

// Compiles every rewrite of every kernel of a file with `ptxas` (a path, or a name in PATH) for `target`, "" being each
// module's own. What ptxas says goes to standard error. Throws std::runtime_error if it cannot be run.
CheckResult check(const std::string& file, const std::string& ptxas, const std::string& target);

}  // namespace bandsaw::tools
