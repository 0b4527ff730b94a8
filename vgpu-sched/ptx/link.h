// Several compilation units (nvcc -rdc=true, cuLinkAddData) into one module, as nvlink does with machine code.
#pragma once

#include <stdexcept>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

struct LinkError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Names without linkage stay private to their unit: where another unit has the same name, they get a suffix. `.weak`
// yields to `.visible`, `.common` to both; `.extern` is bound, and stays `.extern` where nobody defines it. Debug data
// (.section, .file, .loc) goes, as its file numbers and labels clash. Version and architecture are the highest of all.
// One unit comes back unchanged. Throws LinkError for two definitions of a name, a function that is a variable
// elsewhere, and different address sizes.
Module link(std::vector<Module> units);

}  // namespace bandsaw::ptx
