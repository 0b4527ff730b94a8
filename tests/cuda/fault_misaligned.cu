// A misaligned write ends the process's context: every later call says so, and only then.
#include <cassert>

#include "check.h"

__global__ void good(char* data) { data[0] = 5; }
__global__ void bad(char* data) { *reinterpret_cast<double*>(data + 1) = 1.0; }

int main() {
  char *data, got = 0;
  CHECK(cudaMalloc(&data, 256));
  good<<<1, 1>>>(data);
  CHECK(cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 5);
  bad<<<1, 1>>>(data);
  EXPECT_CODE(cudaErrorMisalignedAddress, cudaDeviceSynchronize());
  void* more;
  EXPECT_CODE(cudaErrorMisalignedAddress, cudaMalloc(&more, 16));
  EXPECT_CODE(cudaErrorMisalignedAddress, cudaMemcpy(&got, data, 1, cudaMemcpyDeviceToHost));
  good<<<1, 1>>>(data);
  EXPECT(cudaGetLastError() != cudaSuccess);
  return passed();
}
