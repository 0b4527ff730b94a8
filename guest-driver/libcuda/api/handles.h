// Between the handles that programs hold and those on the wire: the same 64 bits, but for contexts.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/process.h"

namespace bandsaw::libcuda {

template <typename T>
uint64_t to_wire(T* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

template <typename Handle>
Handle from_wire(uint64_t handle) {
  return reinterpret_cast<Handle>(handle);
}

// The handle of a context for structures on the wire; NULL means the current one. 0: there is none.
inline uint64_t wire_context(CUcontext context) {
  const Context* found = from_program(context);
  return found ? found->handle : 0;
}

}  // namespace bandsaw::libcuda
