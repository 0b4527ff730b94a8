// What the timing model says of kernels, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "backend/device/soft/timing/simulate.h"

namespace bandsaw::tools {

// All recorded launches of one kernel.
struct KernelTiming {
  std::string kernel;
  uint64_t launches = 0;
  size_t points = 0;  // program points of its code, before any were merged
  uint64_t grid_blocks = 0;
  soft::timing::Timing sum;
};

// Adds a launch to its kernel's.
void add(const soft::timing::LaunchTrace& launch, const soft::timing::Timing& timing,
         std::vector<KernelTiming>* kernels);
std::string table(const soft::timing::Machine& machine, const std::string& policy,
                  const std::vector<KernelTiming>& kernels);
std::string json(const std::vector<KernelTiming>& kernels);

}  // namespace bandsaw::tools
