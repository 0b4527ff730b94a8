// nvcc: -rdc=true
// The grid's barrier as libcudadevrt has it, which compilers other than nvcc call.
#include "check.h"

__global__ void rounds(int* data, int* sums, int* wrong, int rounds_count) {
  const unsigned long long grid = cudaCGGetIntrinsicHandle(cudaCGScopeGrid);
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z, i = block * threads + thread;
  const unsigned n = threads * gridDim.x * gridDim.y * gridDim.z;
  if (!grid) atomicAdd(wrong, 1);
  for (int round = 0; round < rounds_count; ++round) {
    data[i] = i + round;
    if (cudaCGSynchronize(grid, 0) != cudaSuccess) atomicAdd(wrong, 1);
    const int neighbour = data[(i + n / 2) % n];  // of another block
    if (cudaCGSynchronizeGrid(grid, 0) != cudaSuccess) atomicAdd(wrong, 1);
    sums[i] += neighbour;
  }
}

int main() {
  const dim3 grid(4, 2, 2), block(16, 2, 3);
  constexpr int kCount = 16 * 96;
  int *data, *sums, *wrong, count = 10, bad = 0;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  CHECK(cudaMalloc(&sums, kCount * sizeof(int)));
  CHECK(cudaMalloc(&wrong, sizeof(int)));
  CHECK(cudaMemset(sums, 0, kCount * sizeof(int)));
  CHECK(cudaMemset(wrong, 0, sizeof(int)));
  void* arguments[] = {&data, &sums, &wrong, &count};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(rounds), grid, block, arguments, 0, 0));
  int got[kCount];
  CHECK(cudaMemcpy(got, sums, sizeof(got), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&bad, wrong, sizeof(bad), cudaMemcpyDeviceToHost));
  EXPECT_EQ(bad, 0);
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(got[i], 10 * ((i + kCount / 2) % kCount) + 45);
  return passed();
}
