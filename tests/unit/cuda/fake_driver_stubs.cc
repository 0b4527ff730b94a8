// Every entry point that the device looks for; those that fake_driver.cc does not have answer that they are missing.
#include <cuda.h>

#include "backend/device/cuda/driver_calls.h"

// The symbol behind a name of <cuda.h>, after its version macros.
#define SYMBOL_TEXT(name) #name
#define SYMBOL(name) SYMBOL_TEXT(name)
#define STUB(name)                                            \
  extern "C" CUresult stub_##name(...) __asm__(SYMBOL(name)); \
  extern "C" __attribute__((weak, visibility("default"))) CUresult stub_##name(...) { return CUDA_ERROR_NOT_SUPPORTED; }
BANDSAW_CUDA_DRIVER(STUB)
