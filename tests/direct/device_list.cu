// nvcc: -lcuda
// Prints the UUID and the PCI bus id of each device, a line for each.
#include "../cuda/check.h"

int main() {
  int count = 0;
  const CUresult ready = cuInit(0);
  if (ready == CUDA_ERROR_NO_DEVICE) return 0;
  CHECK_DRIVER(ready);
  CHECK_DRIVER(cuDeviceGetCount(&count));
  for (int device = 0; device < count; device++) {
    CUuuid uuid;
    char bus[32];
    CHECK_DRIVER(cuDeviceGetUuid(&uuid, device));
    CHECK_DRIVER(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
    std::printf("GPU-");
    for (int i = 0; i < 16; i++) {
      std::printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    }
    std::printf(" %s\n", bus);
  }
  return 0;
}
