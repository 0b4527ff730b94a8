// Managed variables (`.attribute(.managed)`) at addresses that the caller has chosen, instead of the driver.
//
// A managed variable's address is one number on the host and on the GPU, and there generic and global addresses are the
// same. So once the place is known, every use of the variable can be that number: nothing is left to be filled in after
// the code was loaded, in whatever context that happens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// `what()` says what cannot be rewritten, by name.
struct ManagedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ManagedVariable {
  std::string name;
  uint64_t bytes = 0, alignment = 1;
};

// False: parsing this text for managed variables is not worth while.
bool may_have_managed(std::string_view text);

// The managed variables that the module defines, in order. Throws ManagedError if one is only declared (units are to be
// linked first), stands in a function, or is of a form that nothing is known of.
std::vector<ManagedVariable> managed_variables(const Module& module);

using Addresses = std::map<std::string, uint64_t, std::less<>>;

// What is to stand at a placed variable's address before its first use.
struct PlacedVariable {
  Variable declaration;  // its initial value (initial_value.h) holds numbers only, unless there is a source
  std::string source;    // a variable of the rewritten module whose value, once loaded, is the initial value; "": none
};

// Takes the managed variables out of the module. In code, one register for each address used holds it from the
// function's beginning; in other variables' initial values the address is a number. A managed variable whose initial
// value holds addresses that only the driver can tell leaves a source variable behind. Debug data, which names the
// variables, goes. `addresses` must name every managed variable. Throws ManagedError as above; the module is then in
// an undefined state. 64-bit addresses only.
std::vector<PlacedVariable> place_managed(Module* module, const Addresses& addresses);

}  // namespace bandsaw::ptx
