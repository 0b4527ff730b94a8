// What NVML says of the host's GPUs, for vgpud, which opens no driver itself.
#pragma once

namespace bandsaw::runner {

// `bandsaw-runner --list-gpus`: a line for each GPU, "cuda:INDEX GPU-UUID", and for each MIG instance of one that is
// cut into such, "cuda:MIG-UUID MIG-UUID". GPUs that do not answer are left out, with a line on standard error. Returns
// an exit status.
int list_gpus();

// `bandsaw-runner --watch-gpu UUID`: a line "xid NUMBER" for each error of the GPU (or of the GPU of that MIG instance)
// that the driver reports, and "lost" when it is gone; until nobody reads there any more. Returns an exit status.
int watch_gpu(const char* uuid);

}  // namespace bandsaw::runner
