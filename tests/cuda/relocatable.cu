// nvcc: -rdc=true
// Relocatable device code: functions and variables resolved by the device linker.
#include "check.h"

extern __device__ int shared_variable;
__device__ __noinline__ int through_link(int a) { return a * 2 + shared_variable; }
__device__ int shared_variable = 9;

__global__ void run(int* out) { *out = through_link(4); }

int main() {
  int *out, got = 0;
  CHECK(cudaMalloc(&out, 4));
  run<<<1, 1>>>(out);
  CHECK(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 17);
  return passed();
}
