// A descriptor as a runner may write it.
#pragma once

#include "backend/control/kernel_descriptor.h"

namespace bandsaw {

// Of a kernel of which eight blocks fit on an SM, with all of its launch left.
inline KernelDescriptor plain_descriptor(uint64_t call, uint64_t shape) {
  KernelDescriptor descriptor;
  descriptor.call = call;
  descriptor.shape = shape;
  descriptor.blocks = descriptor.left = 100'000;
  descriptor.minimum = 132;
  descriptor.block_ps = 200'000;
  descriptor.threads = 256;
  descriptor.registers = 32;
  descriptor.most_resident = 8;
  return descriptor;
}

}  // namespace bandsaw
