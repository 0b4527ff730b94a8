#include "guest-driver/libcuda/core/transport.h"

#include <cstdio>
#include <cstdlib>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

std::unique_ptr<Transport> open_transport(TransportFailure* failure) {
  const char* vgpu = std::getenv("BANDSAW_VGPU");
  return vgpu && *vgpu ? open_direct(vgpu, failure) : open_device(failure);
}

void schema_mismatch(const unsigned char* host_hash, const char* advice, TransportFailure* failure) {
  char host[2 * VGPU_HASH_BYTES + 1];
  for (unsigned i = 0; i < VGPU_HASH_BYTES; i++) std::snprintf(host + 2 * i, 3, "%02x", host_hash[i]);
  failure->error = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  failure->message = std::string("this libcuda.so.1 speaks schema ") + wire::kSchemaHashHex + ", the host speaks " +
                     host + ": " + advice;
}

}  // namespace bandsaw::libcuda
