// The PTX modules in a file of any kind that holds some.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::tools {

struct FoundModule {
  std::string from;  // "PTX", "fatbin 3 (sm_75)"
  ptx::Module module;
};

// PTX text, a fatbin, a cubin, or an executable or shared library with fatbins in it: calls `each` for every module,
// one after another, so that only one of a large library's is in memory. What is left out (machine code only, PTX that
// cannot be read) comes back as notes. Throws std::runtime_error with a sentence for people if the file cannot be read
// or holds no code at all.
std::vector<std::string> read_input(const std::string& path, const std::function<void(FoundModule)>& each);

}  // namespace bandsaw::tools
