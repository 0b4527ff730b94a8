// Which GPUs of this host a GPU reaches, and its NVLinks, as NVIDIA's NVML says.
#pragma once

#include "backend/control/gpu_report.h"
#include "backend/runner/nvml_library.h"

namespace bandsaw::runner {

// `gpu`: NVML's handle. What NVML does not say is not there.
GpuLinks read_links(const NvmlLibrary& nvml, void* gpu);

}  // namespace bandsaw::runner
