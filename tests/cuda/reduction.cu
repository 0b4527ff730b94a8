// A sum over an array: shuffles within warps, shared memory between them, one atomic per block.
// vm: yes
#include <vector>

#include "check.h"

__global__ void sum(const float* data, int n, double* total) {
  __shared__ double parts[32];
  double mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += data[i];
  for (int by = 16; by; by /= 2) mine += __shfl_down_sync(0xffffffffu, mine, by);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x < 32) {
    mine = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0;
    for (int by = 16; by; by /= 2) mine += __shfl_down_sync(0xffffffffu, mine, by);
    if (threadIdx.x == 0) atomicAdd(total, mine);
  }
}

int main() {
  for (const int n : {1, 1000, 1 << 20}) {
    std::vector<float> data(n);
    double wanted = 0;
    for (int i = 0; i < n; ++i) wanted += data[i] = static_cast<float>(i % 1000) * 0.25f;
    float* device;
    double *total, got = 0;
    CHECK(cudaMalloc(&device, n * 4));
    CHECK(cudaMalloc(&total, 8));
    CHECK(cudaMemset(total, 0, 8));
    CHECK(cudaMemcpy(device, data.data(), n * 4, cudaMemcpyHostToDevice));
    sum<<<16, 256>>>(device, n, total);
    CHECK(cudaMemcpy(&got, total, 8, cudaMemcpyDeviceToHost));
    EXPECT_EQ(got, wanted);
    CHECK(cudaFree(device));
    CHECK(cudaFree(total));
  }
  return passed();
}
