// nvcc: -rdc=true
// device: soft
// The size and the rank that libcudadevrt has for a cooperative grid. CUDA documents neither: on an H200 one of the
// checks below fails once in each thread. Compilers take both from the special registers instead.
#include "check.h"

__global__ void ranks(int* wrong, unsigned* seen) {
  const unsigned long long grid = cudaCGGetIntrinsicHandle(cudaCGScopeGrid);
  unsigned n = 0, i = 0, grids = 0, which = 7;
  if (cudaCGGetSize(&n, &grids, grid) != cudaSuccess) atomicAdd(wrong, 1);
  if (cudaCGGetRank(&i, &which, grid) != cudaSuccess) atomicAdd(wrong, 1);
  if (grids != 1 || which != 0 || i >= n) atomicAdd(wrong, 1);
  if (i < n) atomicAdd(&seen[i], 1);
}

int main() {
  const dim3 grid(4, 2, 2), block(16, 2, 3);
  constexpr int kCount = 16 * 96;
  int *wrong, bad = 0;
  unsigned *seen, got[kCount];
  CHECK(cudaMalloc(&wrong, sizeof(int)));
  CHECK(cudaMalloc(&seen, sizeof(got)));
  CHECK(cudaMemset(wrong, 0, sizeof(int)));
  CHECK(cudaMemset(seen, 0, sizeof(got)));
  void* arguments[] = {&wrong, &seen};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(ranks), grid, block, arguments, 0, 0));
  CHECK(cudaMemcpy(got, seen, sizeof(got), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&bad, wrong, sizeof(bad), cudaMemcpyDeviceToHost));
  EXPECT_EQ(bad, 0);
  for (const unsigned times : got) EXPECT_EQ(times, 1u);
  return passed();
}
