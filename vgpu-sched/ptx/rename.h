// Changes of names and debug data across a module.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

using Renaming = std::map<std::string, std::string, std::less<>>;

// Renames module-level variables and functions with every use of them. A local name that hides one stays.
void rename(Module* module, const Renaming& renaming);

// Removes .section, .file and .loc, and the labels' use by them with it.
void drop_debug_data(Module* module);

// The symbols whose addresses an initial value holds.
std::vector<std::string> addresses_in(const Initializer& initial);

}  // namespace bandsaw::ptx
