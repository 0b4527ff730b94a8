#include "guest-driver/libcuda/core/transport.h"

#include <cstdlib>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

std::unique_ptr<Transport> open_transport(TransportFailure* failure) {
  const char* vgpu = std::getenv("BANDSAW_VGPU");
  return vgpu && *vgpu ? open_direct(vgpu, failure) : open_device(failure);
}

void release_mismatch(const vgpu_schema& host, TransportFailure* failure) {
  failure->error = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  failure->message = std::string("this libcuda.so.1 is of release ") + wire::kRelease + ", the host of " +
                     wire::release_of(host) + ": install the host's guest package";
}

}  // namespace bandsaw::libcuda
