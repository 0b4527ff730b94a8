// The PTX modules in a file of any kind that holds some.
#pragma once

#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::tools {

struct FoundModule {
  std::string from;  // "PTX", "fatbin 3 (sm_75)"
  ptx::Module module;
};

struct Input {
  std::vector<FoundModule> modules;
  std::vector<std::string> notes;  // what holds no PTX, or PTX that cannot be read
};

// PTX text, a fatbin, a cubin, or an executable or shared library with fatbins in it. Throws std::runtime_error with a
// sentence for people if the file cannot be read or holds no code at all.
Input read_input(const std::string& path);

}  // namespace bandsaw::tools
