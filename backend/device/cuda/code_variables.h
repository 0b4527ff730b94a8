// Variables of code, by their names: the driver tells where each is, and not which there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bandsaw::cuda {

struct CodeVariables {
  std::vector<std::string> names;  // of __device__ and __constant__ variables, static ones among them; sorted
  bool machine_code = false;       // all of them are there; of PTX the driver leaves out those that nothing uses
  bool allocates = false;          // kernels may call malloc
  bool keeps_functions = false;    // it has addresses of functions, which kernels may keep in memory
};

// What is loaded of `image` on a GPU of this compute capability (90 for 9.0). False: nobody can tell. A pure function
// of untrusted bytes.
bool list_variables(std::span<const std::byte> image, uint32_t capability, CodeVariables* variables);

}  // namespace bandsaw::cuda
