// What a rewritten kernel is made of, for its descriptor (backend/control/kernel_descriptor.h): known when it is
// rewritten.
#pragma once

#include <string_view>

#include "backend/control/kernel_descriptor.h"
#include "backend/device/device.h"
#include "vgpu-sched/ptx/program.h"

namespace bandsaw::runner {

struct CodeTraits {
  uint64_t hash = 0;  // of the rewritten text
  uint32_t registers = 0, shared_bytes = 0;
  uint32_t memory = 0;     // accesses of global memory, of all instructions, in kDescriptorParts
  uint32_t scattered = 0;  // of these accesses, in kDescriptorParts

  // `text` is the rewritten kernel and `function` what the device made of it; `kernel` its name in `program`.
  static CodeTraits of(Device* device, std::string_view text, const FunctionRef& function, const ptx::Program& program,
                       std::string_view kernel);
};

// A fraction as descriptors have it, in kDescriptorParts.
uint32_t descriptor_part(double value);

// Of a launch of it: another value for another block or dynamic shared memory.
uint64_t shape_hash(const CodeTraits& traits, const Launch& launch);

// Of a launch that runs whole: the same for the same kernel, grid, block and dynamic shared memory.
uint64_t whole_launch_hash(std::string_view kernel, const Launch& launch);

}  // namespace bandsaw::runner
