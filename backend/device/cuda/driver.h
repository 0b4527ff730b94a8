// NVIDIA's driver library, found at run time: nothing of Bandsaw links against it, so that every program starts on
// machines without a GPU.
//
// Driver is a table of the entry points that this device uses, each with the version that <cuda.h> declares (the
// header's macros map cuMemAlloc to cuMemAlloc_v2, and so on). Immutable once loaded, so any thread may use it.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "backend/device/cuda/driver_calls.h"
#include "memory/base/status.h"

namespace bandsaw::cuda {

struct Driver {
#define BANDSAW_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  BANDSAW_CUDA_DRIVER(BANDSAW_CUDA_MEMBER)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  BANDSAW_CUDA_OLD_DRIVER(BANDSAW_CUDA_MEMBER)  // null: the driver has it no more
#pragma GCC diagnostic pop
#undef BANDSAW_CUDA_MEMBER

  // Loads libcuda.so.1 of the NVIDIA driver and initialises it. An error says what is missing and what to do.
  static Result<std::shared_ptr<const Driver>> load();
  // "CUDA_ERROR_NAME (text)".
  std::string describe(CUresult error) const;
};

}  // namespace bandsaw::cuda
