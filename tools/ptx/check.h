// Whether NVIDIA's compiler takes what the rewriters make.
#pragma once

#include <string>
#include <vector>

#include "vgpu-sched/ptx/guard.h"

namespace bandsaw::tools {

// A place for guarded modules of which only the text is wanted: 64 GiB with 16 GiB on either side.
inline constexpr ptx::GuardArea kExampleArea{
    .base = 0x20c000000000, .bits = 36, .slack = uint64_t{16} << 30, .table = 0x20c000000000, .report = 0x200000001000};

struct CheckResult {
  size_t kernels = 0, compiled = 0, refused = 0;
  std::vector<std::string> failures;  // "fatbin 1 (sm_75), name, sliced: ptxas exit status 1"
};

// Compiles every rewrite of every kernel of a file with `ptxas` (a path, or a name in PATH) for `target`, "" being each
// module's own. What ptxas says goes to standard error. Throws std::runtime_error if it cannot be run.
CheckResult check(const std::string& file, const std::string& ptxas, const std::string& target);

}  // namespace bandsaw::tools
