// Occupancy answers follow from threads, shared memory and registers.
#include "check.h"

__global__ void plain(int* out) { *out = threadIdx.x; }
__global__ void hungry(int* out) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  *out = shared[0];
}

int main() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  int blocks = 0, few = 0, grid = 0, block = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 256, 0));
  EXPECT_EQ(blocks, prop.maxThreadsPerMultiProcessor / 256);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&few, hungry, 128, 48 * 1024));
  EXPECT(few >= 1 && few <= static_cast<int>(prop.sharedMemPerMultiprocessor / (48 * 1024)));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain, 0, 0));
  EXPECT(block % 32 == 0 && block > 0 && block <= 1024);
  EXPECT(grid % prop.multiProcessorCount == 0);
  size_t dynamic = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&dynamic, hungry, 2, 128));
  EXPECT(dynamic > 0 && dynamic <= prop.sharedMemPerMultiprocessor / 2);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, hungry));
  EXPECT(attributes.maxThreadsPerBlock > 0 && attributes.numRegs >= 0 && attributes.sharedSizeBytes < 1024);
  CHECK(cudaFuncSetAttribute(hungry, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
  int* out;
  CHECK(cudaMalloc(&out, 4));
  hungry<<<1, 32, 64 * 1024>>>(out);
  CHECK(cudaDeviceSynchronize());
  return passed();
}
