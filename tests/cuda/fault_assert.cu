// A failed assertion ends the process's context: every later call says so, and only then.
// output: Assertion `data == nullptr` failed.
#include <cassert>

#include "check.h"

__global__ void good(char* data) { data[0] = 5; }
__global__ void bad(char* data) { assert(data == nullptr); }

int main() {
  char *data, got = 0;
  CHECK(cudaMalloc(&data, 256));
  good<<<1, 1>>>(data);
  CHECK(cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 5);
  bad<<<1, 1>>>(data);
  EXPECT_CODE(cudaErrorAssert, cudaDeviceSynchronize());
  void* more;
  EXPECT_CODE(cudaErrorAssert, cudaMalloc(&more, 16));
  EXPECT_CODE(cudaErrorAssert, cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  good<<<1, 1>>>(data);
  EXPECT(cudaGetLastError() != cudaSuccess);
  return passed();
}
