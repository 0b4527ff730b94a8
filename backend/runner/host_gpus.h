// What NVML says of the host's GPUs, for vgpud, which opens no driver itself.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::runner {

// Of each GPU of this host, also of those that CUDA_VISIBLE_DEVICES hides; not of MIG instances. Any thread. ENODEV.
Result<std::vector<std::string>> host_gpu_uuids();

// `bandsaw-runner --list-gpus`: a line for each GPU, "cuda:INDEX GPU-UUID", and for each MIG instance of one that is
// cut into such, "cuda:MIG-UUID MIG-UUID". GPUs that do not answer are left out, with a line on standard error. Returns
// an exit status.
int list_gpus();

// `bandsaw-runner --watch-gpu UUID`: a line "xid NUMBER" for each error of the GPU (or of the GPU of that MIG instance)
// that the driver reports, and "lost" when it is gone; until nobody reads there any more. Returns an exit status.
int watch_gpu(const char* uuid);

}  // namespace bandsaw::runner
