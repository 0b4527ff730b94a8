// A kernel whose result tells whether its image was read right, for the programs that differ only in how it is packed.
#pragma once

#include "check.h"

__constant__ int image_factor = 3;

__global__ void image_kernel(int* data, int n) {
  __shared__ int shared[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = i < n ? data[i] : 0;
  __syncthreads();
  if (i < n) data[i] = shared[63 - threadIdx.x] * image_factor + i;
}

inline int run_image_kernel() {
  constexpr int kCount = 640;
  int host[kCount], *device;
  for (int i = 0; i < kCount; ++i) host[i] = i;
  CHECK(cudaMalloc(&device, sizeof(host)));
  CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
  image_kernel<<<kCount / 64, 64>>>(device, kCount);
  CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(host[i], (i / 64 * 64 + 63 - i % 64) * 3 + i);
  return passed();
}
