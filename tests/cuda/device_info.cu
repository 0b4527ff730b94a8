// nvcc: -lcuda
// Devices, properties and attributes agree with one another.
#include <cstring>

#include "check.h"

int main() {
  int count = 0, driver = 0, runtime = 0;
  CHECK(cudaGetDeviceCount(&count));
  EXPECT(count >= 1);
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  EXPECT(driver >= runtime);

  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  EXPECT(std::strlen(prop.name) > 0);
  EXPECT_EQ(prop.warpSize, 32);
  EXPECT_EQ(prop.maxThreadsPerBlock, 1024);
  EXPECT(prop.multiProcessorCount > 0 && prop.major >= 7);
  EXPECT(prop.totalGlobalMem > 0 && prop.unifiedAddressing && prop.managedMemory && prop.canMapHostMemory);

  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(value, prop.multiProcessorCount);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlock, 0));
  EXPECT_EQ(static_cast<size_t>(value), prop.sharedMemPerBlock);

  CUdevice device;
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  char name[256];
  CHECK_DRIVER(cuDeviceGetName(name, sizeof(name), device));
  EXPECT(std::strcmp(name, prop.name) == 0);
  size_t total = 0;
  CHECK_DRIVER(cuDeviceTotalMem(&total, device));
  EXPECT_EQ(total, prop.totalGlobalMem);
  CUuuid uuid;
  CHECK_DRIVER(cuDeviceGetUuid(&uuid, device));
  EXPECT(std::memcmp(&uuid, &prop.uuid, sizeof(uuid)) == 0);

  char bus[32];
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
  int same = -1;
  CHECK(cudaDeviceGetByPCIBusId(&same, bus));
  EXPECT_EQ(same, 0);
  EXPECT_CODE(cudaErrorInvalidDevice, cudaSetDevice(count));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, count));
  int least, greatest;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(greatest <= least);
  std::printf("%s, %d SMs, %zu MiB\n", prop.name, prop.multiProcessorCount, prop.totalGlobalMem >> 20);
  return passed();
}
