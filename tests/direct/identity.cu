// nvcc: -lcuda
// Says what the device is called, and checks that all ways of asking agree.
#include <cstring>

#include "../cuda/check.h"

int main() {
  CHECK(cudaFree(nullptr));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  CUuuid uuid;
  CHECK_DRIVER(cuDeviceGetUuid(&uuid, 0));
  EXPECT(std::memcmp(&uuid, &prop.uuid, sizeof(uuid)) == 0);
  char bus[32], wanted[32];
  CHECK_DRIVER(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
  std::snprintf(wanted, sizeof(wanted), "%04X:%02X:%02X.0", static_cast<unsigned>(prop.pciDomainID),
                static_cast<unsigned>(prop.pciBusID), static_cast<unsigned>(prop.pciDeviceID));
  EXPECT(std::strcmp(bus, wanted) == 0);
  CUdevice same = -1;
  CHECK_DRIVER(cuDeviceGetByPCIBusId(&same, bus));
  EXPECT_EQ(same, 0);
  std::printf("GPU-");
  for (int i = 0; i < 16; i++) {
    std::printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
  std::printf(" %s\n", bus);
  return 0;
}
