// A kernel that never ends. Prints a line once it runs.
#include <cuda_runtime.h>

#include <cstdio>

__global__ void endless(volatile int* at) {
  *at = 1;
  while (*at) {
  }
}

int main() {
  int* flag;
  if (cudaHostAlloc(&flag, 4, cudaHostAllocMapped) != cudaSuccess) return 1;
  *flag = 0;
  endless<<<4, 64>>>(flag);
  while (*static_cast<volatile int*>(flag) == 0) {
  }
  std::printf("running\n");
  std::fflush(stdout);
  return cudaDeviceSynchronize();
}
