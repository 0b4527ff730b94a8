// What the process has as a whole: made by the first successful cuInit, never freed, so that calls during exit (after
// static destructors) still find it.
#pragma once

#include <cuda.h>

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

enum class State : int {
  kUninitialised,  // also in a child of fork: CUDA does not survive fork
  kReady,
};

// The API that this library implements.
inline constexpr int kDriverVersion = 13000;
// What cuDriverGetVersion says: that, or what BANDSAW_DRIVER_VERSION asks for. Programs whose compiler is newer than
// the driver hand over machine code instead of PTX, which is no use to the software device.
int driver_version();

State state();

class Window;
// The process's address window. Valid once cuInit has succeeded.
Window& guest_window();

// cuInit's work; thread-safe.
CUresult initialise();

// CUDA_SUCCESS, or what a call that needs an initialised driver returns now: not initialised, or what has become of the
// current device.
CUresult health();

}  // namespace bandsaw::libcuda
