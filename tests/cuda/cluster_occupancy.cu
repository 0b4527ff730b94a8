// How many clusters there is room for, also of sizes that no launch may have: cuBLAS learns from the answers which SMs
// belong together, and chooses its kernels by them.
// device: gpu
// nvcc: -arch=sm_90 -lcuda
#include <cuda.h>

#include "check.h"

__global__ void nothing() {}

// -1: the driver answered with an error.
static int room_for(unsigned size) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {size, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = size;
  config.blockDim = 128;
  config.dynamicSmemBytes = 200 << 10;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = -1;
  return cudaOccupancyMaxActiveClusters(&clusters, nothing, &config) == cudaSuccess ? clusters : -1;
}

int main() {
  CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  EXPECT_EQ(room_for(9), -1);  // not portable, and not allowed yet
  cudaGetLastError();
  CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  int sms = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  int before = sms;
  for (unsigned size = 1; size <= 32; ++size) {
    const int clusters = room_for(size);
    std::printf("of %u: %d\n", size, clusters);
    EXPECT(clusters >= 0 && clusters <= before);
    before = clusters;
  }
  EXPECT_EQ(before, 0);  // no GPU has 32 SMs together
  return passed();
}
